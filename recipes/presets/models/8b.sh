# Qwen3-VL-8B.
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen3-VL-8B-Instruct}
