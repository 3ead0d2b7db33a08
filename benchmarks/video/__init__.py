"""Parts of `benchmarks.video_io`; the makers of its short videos are those of the tests, `tests.videos`."""
