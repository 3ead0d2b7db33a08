"""Parts of `benchmarks.video_io`; its test videos are also those of the tests."""
