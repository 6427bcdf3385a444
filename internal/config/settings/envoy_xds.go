package settings

import (
	"strconv"
	"strings"
)

// xds reads which xDS server the limits come from.
func (e *envoyEnvironment) xds() {
	e.set("limits.source", string(SourceXDS), "CONFIG_TYPE")
	e.set("limits.xds.address", strings.TrimPrefix(e.values["CONFIG_GRPC_XDS_SERVER_URL"], "dns:///"), "CONFIG_GRPC_XDS_SERVER_URL")
	// Its health check is the liveness probe too: a daemon that waits for limits must not
	// be restarted because of it.
	e.set("limits.ready_before_loaded", strconv.FormatBool(e.isTrue("FORCE_START_WITHOUT_INITIAL_CONFIG")), "FORCE_START_WITHOUT_INITIAL_CONFIG")
}

func (e *envoyEnvironment) wantsXDSTLS() bool {
	return e.values["CONFIG_TYPE"] == "GRPC_XDS_SOTW" && e.isTrue("CONFIG_GRPC_XDS_SERVER_USE_TLS")
}

// boundsXDS reports whether a size is given; 0 is that service's word for none.
func (e *envoyEnvironment) boundsXDS() bool {
	size := e.values["XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"]
	return e.values["CONFIG_TYPE"] == "GRPC_XDS_SOTW" && size != "" && size != "0"
}
