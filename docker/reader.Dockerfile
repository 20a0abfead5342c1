# Reads profiles anywhere, without a GPU:
#   docker build -f docker/reader.Dockerfile -t perfml .
#   docker run --rm -v "$PWD:/work" perfml report my.ncu-rep --out report.html
FROM python:3.12-slim
COPY pyproject.toml README.md LICENSE /perfml/
COPY perfml /perfml/perfml
COPY collectors /perfml/collectors
COPY datasets /perfml/datasets
RUN python -m pip install --no-cache-dir '/perfml[ncu]' && rm -r /perfml
WORKDIR /work
ENTRYPOINT ["perfml"]
