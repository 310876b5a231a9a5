# The processor and its admin API. Two stages: what builds stays behind.
#
#   docker build --tag ringfence:0.1.0 .
#
# For a build that can be repeated, name the base by digest: --build-arg PYTHON=docker.io/library/python@sha256:...
# (the same Python as here: the environment is copied from stage to stage)
ARG PYTHON=docker.io/library/python:3.11.15-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all:
WORKDIR /build
# Outside the folder that becomes the wheel, or it would become part of it.
RUN python -m venv /opt/wheel-tools && python -m venv --without-pip /opt/ringfence
COPY requirements/service.txt requirements/build.txt requirements/
RUN python -m pip --python /opt/ringfence/bin/python install --require-hashes --requirement requirements/service.txt \
 && /opt/wheel-tools/bin/pip install --require-hashes --requirement requirements/build.txt
COPY pyproject.toml README.md ./
COPY ringfence ringfence
COPY service service
COPY state state
COPY api api
RUN /opt/wheel-tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /build/dist . \
 && python -m pip --python /opt/ringfence/bin/python install --no-deps --no-index /build/dist/ringfence-*.whl

FROM ${PYTHON}
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="Ringfence" \
      org.opencontainers.image.description="Recognises duplicate Kafka messages and keeps them out, exactly once." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# Nothing that installs software stays; the state's folder belongs to the user that runs it.
RUN python -m pip uninstall --yes --quiet --root-user-action ignore setuptools wheel pip \
 && rm -rf "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/ensurepip" \
 && groupadd --gid 10001 ringfence \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/ringfence --shell /usr/sbin/nologin ringfence \
 && install --directory --owner 10001 --group 10001 /var/lib/ringfence
COPY --from=build /opt/ringfence /opt/ringfence
# Modules were compiled at install; at run time the root may be read-only.
ENV PATH=/opt/ringfence/bin:${PATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/ringfence
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["ringfence"]
CMD ["serve", "--config", "/etc/ringfence/ringfence.toml"]
