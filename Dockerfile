# staleharness with its pinned dependencies, on the CPU:
#   docker build -t staleharness .
#   docker run --rm -v "$PWD/results:/work/results" staleharness sweep --env Hopper --k 8
FROM python:3.12-slim
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu "torch==2.13.0+cpu"
WORKDIR /src
COPY . .
RUN grep -v '^torch==' constraints/py312.txt > /tmp/pins.txt \
    && pip install --no-cache-dir -c /tmp/pins.txt . \
    && rm -rf /src/* /tmp/pins.txt
WORKDIR /work
ENTRYPOINT ["staleharness"]
CMD ["--help"]
