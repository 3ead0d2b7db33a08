"""What a training run needs and takes, modelled before it starts: memory, time, disk, and options that follow."""
