# Ringfence's images; docs/image.md tells what is in them.
#
#   docker build --tag ringfence:0.1.0 .                                     the service and the bridge
#   docker build --tag ringfence-spark:0.1.0 --target spark .                the Spark jobs, here and on Kubernetes
#
# An index of one's own: --secret id=pip.conf,src=$HOME/.config/pip/pip.conf, and for Maven
# --secret id=settings.xml,src=$HOME/.m2/settings.xml. Neither stays in the image.
#
# The bases are pinned by version and not by digest, so that a build takes the fixes of Debian that
# they were built with last; what we add is pinned by hashes. For a build that can be repeated byte
# for byte: --build-arg PYTHON=docker.io/library/python@sha256:... (a Python of the same version).
ARG PYTHON=docker.io/library/python:3.11.15-slim-bookworm
ARG COMPILER=docker.io/library/python:3.11.15-bookworm
ARG JAVA=docker.io/library/maven:3.9.9-eclipse-temurin-17

# What builds: nothing of it stays.
FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all: PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
# Outside the folder that becomes the wheel, or it would become part of it.
RUN python -m venv --without-pip /opt/wheel-tools && python -m venv --without-pip /opt/ringfence
COPY requirements/schema-registry.txt requirements/build.txt requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python -m pip --python /opt/ringfence/bin/python install --require-hashes --requirement requirements/schema-registry.txt \
 && python -m pip --python /opt/wheel-tools/bin/python install --require-hashes --requirement requirements/build.txt
# With --build-arg TRACING=yes the image can send spans ([tracing] in the configuration).
ARG TRACING=no
COPY requirements/tracing.txt requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    if [ "$TRACING" = yes ]; then python -m pip --python /opt/ringfence/bin/python install --require-hashes --requirement requirements/tracing.txt; fi
COPY pyproject.toml README.md LICENSE ./
COPY ringfence ringfence
COPY service service
COPY state state
COPY api api
COPY pipeline pipeline
RUN for folder in ringfence .; do (cd "$folder" && /opt/wheel-tools/bin/python -c "from hatchling.build import build_wheel; build_wheel('/build/dist')") || exit 1; done \
 && python -m pip --python /opt/ringfence/bin/python install --no-deps --no-index /build/dist/*.whl

# The compiled fast path, for the same Python with a C compiler.
FROM ${COMPILER} AS native
COPY native native
RUN mkdir /opt/native && python native/build.py --to /opt/native && test -e /opt/native/ringfence_native.abi3.so

# The processor with its admin API, and the bridge.
FROM ${PYTHON} AS service
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="Ringfence" \
      org.opencontainers.image.description="Recognises duplicate Kafka messages and keeps them out, exactly once." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# No pip stays; the state's folder belongs to the user that runs it.
RUN python -m pip uninstall --yes --quiet --root-user-action ignore setuptools wheel pip \
 && rm -rf "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/ensurepip" \
 && groupadd --gid 10001 ringfence \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/ringfence --shell /usr/sbin/nologin ringfence \
 && install --directory --owner 10001 --group 10001 /var/lib/ringfence
COPY --from=build /opt/ringfence /opt/ringfence
COPY --from=native /opt/native /opt/ringfence/lib/python3.11/site-packages
# Modules were compiled at install; at run time the root may be read-only.
ENV PATH=/opt/ringfence/bin:${PATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/ringfence
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["ringfence"]
CMD ["serve", "--config", "/etc/ringfence/ringfence.toml"]

# pyspark is published as source alone; setuptools turns it into what is installed. What it packs,
# 400 MB of compressed jars, is unpacked at once, so it compresses nothing again.
FROM build AS spark-build
COPY requirements/spark.txt requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python -m pip --python /opt/wheel-tools/bin/python install --require-hashes --no-binary pyspark --no-build-isolation --use-pep517 --config-settings=--build-option=--compression=stored --target /opt/spark --requirement requirements/spark.txt

# The jars by their checksums, and of Java no more than runs them.
FROM ${JAVA} AS java-build
WORKDIR /build
COPY pipeline/ringfence_pipeline/jars.pom.xml pipeline/ringfence_pipeline/jars.sha256 ./
RUN --mount=type=secret,id=settings.xml,target=/root/.m2/settings.xml \
    mvn --batch-mode --quiet --file jars.pom.xml org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DexcludeTransitive=true -DoutputDirectory=/opt/spark-jars \
 && cd /opt/spark-jars && sha256sum --check --strict /build/jars.sha256
RUN jlink --add-modules java.se,jdk.crypto.ec,jdk.incubator.vector,jdk.jfr,jdk.management,jdk.net,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs --strip-java-debug-attributes --no-header-files --no-man-pages --output /opt/java

# The Spark jobs: all of the above, a Java, pyspark and the jars; nothing is fetched at the start.
# One image for a job in one process and for the driver and executors of one on Kubernetes.
FROM service AS spark
COPY --from=java-build /opt/java /opt/java
COPY --from=java-build /opt/spark-jars /opt/spark-jars
COPY --from=spark-build /opt/spark /opt/spark
COPY pipeline/ringfence_pipeline/__main__.py /opt/ringfence/job.py
# Driver and executors run Python in the same environment. A session in one process talks to itself
# over loopback, and asks nobody for the name of the container.
ENV JAVA_HOME=/opt/java SPARK_HOME=/opt/spark/pyspark PYTHONPATH=/opt/spark PYSPARK_PYTHON=/opt/ringfence/bin/python RINGFENCE_SPARK_JARS=/opt/spark-jars SPARK_LOCAL_HOSTNAME=localhost
ENTRYPOINT ["python", "-P", "-m", "ringfence_pipeline.container"]
CMD ["--help"]

# What is built when no target is named.
FROM service
