# The image of ratelimitd: one static binary, the certificates of the public
# CAs, and nothing else; not even a shell. Build it with `make image`, or
#
#   docker build --build-arg VERSION=v1.2.3 --build-arg REVISION="$(git rev-parse HEAD)" -t ratelimitd .
#
# For other machines than this one, or for several at once:
#
#   docker buildx build --platform linux/amd64,linux/arm64 ...
#
# It says what it needs in docs/deploy.md.

# The build runs on this machine, whatever the image is for: Go compiles for others. A
# builder before BuildKit has no BUILDPLATFORM, and builds for its own machine alone.
FROM --platform=${BUILDPLATFORM:-linux} golang:1.26 AS build
WORKDIR /src
# Modules change less often than code, so they are a layer of their own. Those that
# the daemon's module requires of this project are taken from here.
COPY go.mod go.sum ./
COPY client/go.mod client/go.sum client/
COPY internal/bucket/go.mod internal/bucket/go.sum internal/bucket/
COPY proto/go.mod proto/go.sum proto/
RUN go mod edit \
      -replace=github.com/ratelimitd/ratelimitd/client=./client \
      -replace=github.com/ratelimitd/ratelimitd/internal/bucket=./internal/bucket \
      -replace=github.com/ratelimitd/ratelimitd/proto=./proto && \
    go mod download
COPY client client
COPY cmd cmd
COPY deploy deploy
COPY internal internal
COPY proto proto
ARG VERSION=
# What BuildKit builds for.
ARG TARGETOS
ARG TARGETARCH
# By the name ratelimit it takes the place of envoyproxy/ratelimit.
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/bin/ratelimitd ./cmd/ratelimitd && \
    ln -s ratelimitd /out/bin/ratelimit && mkdir -p /out/var/lib/ratelimitd

FROM scratch
# For a Redis with a certificate of a public CA; redis.tls.ca names others.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/bin/ /bin/
# Where assignments are kept without Redis: /var/lib/ratelimitd. A volume that is new
# gets the folder's owner.
COPY --from=build --chown=65532:65532 /out/var/ /var/

# Beyond loopback the admin port serves no profiles.
ENV RATELIMITD_ADMIN_ADDRESS=:6070
# HTTP, gRPC, admin.
EXPOSE 8080 8081 6070

# Nobody: a number, so that Kubernetes can see that it is not root.
USER 65532:65532
# It asks the gRPC port that the environment names.
HEALTHCHECK --interval=5s --timeout=2s --start-period=10s CMD ["/bin/ratelimitd", "health"]
ENTRYPOINT ["/bin/ratelimitd"]
# The limits are not in the image: mount a folder at /etc/ratelimitd/limits.
CMD ["serve"]

# Last, since they change with every build.
ARG VERSION=
ARG REVISION=
LABEL org.opencontainers.image.title="ratelimitd" \
      org.opencontainers.image.description="A rate-limit service for Envoy and for any program that speaks gRPC or HTTP" \
      org.opencontainers.image.source="https://github.com/ratelimitd/ratelimitd" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
