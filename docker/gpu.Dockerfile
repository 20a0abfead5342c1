# Records profiles where the GPU is:
#   docker build -f docker/gpu.Dockerfile -t perfml-gpu .
#   docker run --rm --gpus all --cap-add SYS_ADMIN -v "$PWD:/work" perfml-gpu collect --out run -- ./my_program
# SYS_ADMIN lets the program read performance counters; without it perfml prove and times still work.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends g++ python3 python3-venv && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/perfml
ENV PATH=/opt/perfml/bin:$PATH
COPY pyproject.toml README.md LICENSE /perfml/
COPY perfml /perfml/perfml
COPY collectors /perfml/collectors
COPY datasets /perfml/datasets
RUN python -m pip install --no-cache-dir '/perfml[ncu,gpu]' && rm -r /perfml
WORKDIR /work
ENTRYPOINT ["perfml"]
