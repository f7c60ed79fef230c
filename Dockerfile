# staleharness with its pinned dependencies, on the CPU:
#   docker build -t staleharness .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD/results:/work/results" staleharness sweep --env Hopper --k 8
ARG PYTHON=3.12
FROM python:${PYTHON}-slim
ARG PYTHON
WORKDIR /src
COPY . .
# The pin of torch has a CPU build of the same number; plain pip would bring gigabytes of CUDA.
RUN sed 's/^torch==[0-9.]*/&+cpu/' "constraints/py$(echo "$PYTHON" | tr -d .).txt" > /tmp/pins.txt \
    && pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c /tmp/pins.txt . \
    && pip check \
    && rm -rf /src/* /tmp/pins.txt
# Any user may run it: whatever is cached goes to a place that everybody can write.
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["staleharness"]
CMD ["--help"]
