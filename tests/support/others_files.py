"""Files that others recorded, beside the repository: read here, shipped nowhere."""

from tests.support.paths import PUBLIC

STRANGERS = PUBLIC.parent / "strangers"
_NO_DATA = {"README.md", "score.py", "labels.json"}

REFUSED = {
    "csc746_report1.nsys-rep": "a report of Nsight Systems",
    "darknet19_v100_metrics_all.txt": "no launch in this has a duration",
    "dd2360_ncu_failed.txt": "Nsight Compute ended with an error",
    "nbody_openacc.nvvp": "a session of the Visual Profiler",
    "thor_print_summary_per_kernel_excerpt.csv": "a summary over launches, not the launches",
    "thrust2d_gtx1070_native.profile": "no launch in this has a duration",
    "titanxp_bfs_no_kernels_profiled.txt": "holds no kernels",
    "mobilenet.qat.onnx.engine.graph.json": "no launch in this has a duration",
    "mobilenet.qat.onnx.engine.profile.metadata.json": "the summary of a TensorRT run",
}
"""Files that cannot be explained, and what the error calls them."""


STEPS = ("2048_00", "2048_08", "512_01", "512_07")
"""Of the many steps of one program, the same metrics of kernels much alike, those that are read."""


def others_files():
    """Return the recorded files of others, by the path below the folder; none where it is not."""
    return {
        path.relative_to(PUBLIC.parent).as_posix(): path
        for folder in (PUBLIC, STRANGERS)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in _NO_DATA
        if path.parent.name != "feather" or path.name.startswith(STEPS)
    }
