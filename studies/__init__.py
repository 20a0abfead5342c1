"""What proves perfml: exams, planted causes, ladders, the published study. See ``README.md``.

Here to change: how it was measured, ``STUDY/measure.py``; its page, ``STUDY/page.py``; recordings,
``data``; kernels to collect, ``workloads``.
"""
