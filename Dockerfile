# A static binary on an empty image: nothing to patch but the program itself.
#   docker build --build-arg VERSION=$(git describe --tags --always) --tag chprojector/projector .

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
# The modules change seldom and are a layer of their own.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags="-s -w -X main.version=$VERSION" -o /out/projector ./cmd/projector

FROM scratch
# Certificates for TLS to Kafka and ClickHouse; time zones are in the binary.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/projector /projector
# A number, because Kubernetes' runAsNonRoot cannot judge a name.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/projector"]
CMD ["run"]
