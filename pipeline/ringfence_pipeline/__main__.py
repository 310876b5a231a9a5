"""`ringfence pipeline` for `spark-submit`, which takes a file and no command."""

from ringfence_pipeline.command import app

if __name__ == "__main__":
    app(prog_name="ringfence pipeline")
