package settings

import (
	"strconv"
	"strings"
)

// xds reads which xDS server the limits come from.
func (e *envoyEnvironment) xds() {
	e.set("limits.source", string(SourceXDS), "CONFIG_TYPE")
	e.set("limits.xds.address", strings.TrimPrefix(e.values["CONFIG_GRPC_XDS_SERVER_URL"], "dns:///"), "CONFIG_GRPC_XDS_SERVER_URL")
	e.copy("limits.xds.node_id", "CONFIG_GRPC_XDS_NODE_ID")
	e.copy("limits.xds.node_metadata", "CONFIG_GRPC_XDS_NODE_METADATA")
	e.copy("limits.xds.headers", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS")
	if e.isTrue("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
		e.set("limits.xds.tls.enabled", "true", "CONFIG_GRPC_XDS_SERVER_USE_TLS")
		e.copy("limits.xds.tls.ca", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT")
		e.copy("limits.xds.tls.cert", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT")
		e.copy("limits.xds.tls.key", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY")
		e.copy("limits.xds.tls.server_name", "CONFIG_GRPC_XDS_SERVER_TLS_SAN")
	}
	if size := e.values["XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"]; size != "" && size != "0" {
		e.copy("limits.xds.max_bytes", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES")
	}
	// Its health check is the liveness probe too: a daemon that waits for limits must not
	// be restarted because of it.
	e.set("limits.ready_before_loaded", strconv.FormatBool(e.isTrue("FORCE_START_WITHOUT_INITIAL_CONFIG")), "FORCE_START_WITHOUT_INITIAL_CONFIG")
}
