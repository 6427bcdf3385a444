package settings

import (
	"net"
	"strconv"
	"strings"
)

// wantsStatsd reports whether statistics are sent. By default there need not be a
// server that receives them, so one of these variables must be given.
func (e *envoyEnvironment) wantsStatsd() bool {
	switch {
	case e.isTrue("DISABLE_STATS"):
		return false
	case e.isTrue("USE_DOG_STATSD"):
		return true
	}
	return e.isTrue("USE_STATSD") && (e.given["USE_STATSD"] || e.given["STATSD_HOST"] || e.givesStatsdPort()) && !e.isTrue("USE_PROMETHEUS")
}

func (e *envoyEnvironment) wantsPlainStatsd() bool {
	return e.wantsStatsd() && !e.isTrue("USE_DOG_STATSD")
}

// givesStatsdPort reports whether a port is given. Kubernetes gives a URL in that variable,
// unasked, for a Service named statsd.
func (e *envoyEnvironment) givesStatsdPort() bool {
	_, err := strconv.ParseUint(e.values["STATSD_PORT"], 10, 16)
	return e.given["STATSD_PORT"] && err == nil
}

// statsd reads where statistics go. That service sends them over TCP by default, and
// those of DogStatsD always over UDP.
func (e *envoyEnvironment) statsd() {
	if !e.wantsStatsd() {
		return
	}
	host := e.values["STATSD_HOST"]
	if host == "" {
		host = "localhost"
	}
	if port, err := strconv.ParseUint(e.values["STATSD_PORT"], 10, 16); err != nil || port == 0 {
		e.refuseVariable("STATSD_PORT", "an integer from 1 to 65535")
	} else {
		e.set("statsd.address", net.JoinHostPort(host, strconv.FormatUint(port, 10)), "STATSD_HOST", "STATSD_PORT")
	}
	if e.isTrue("USE_DOG_STATSD") {
		e.set("statsd.protocol", "udp", "USE_DOG_STATSD")
		e.set("statsd.dog", "true", "USE_DOG_STATSD")
		e.mogrifiers()
	}
	if tags, ok := splitPairs(e.values["EXTRA_TAGS"], ":"); !ok {
		e.refuseVariable("EXTRA_TAGS", "key:value,key:value")
	} else if len(tags) > 0 {
		e.set("statsd.tags", joinPairs(tags, "="), "EXTRA_TAGS")
	}
}

// mogrifiers reads the named rules, each of which has its own variables. That service
// tries them in no particular order; here the first match counts.
func (e *envoyEnvironment) mogrifiers() {
	const names = "USE_DOG_STATSD_MOGRIFIERS"
	if e.values[names] == "" {
		return
	}
	var rules []StatsdRule
	for name := range strings.SplitSeq(e.values[names], ",") {
		prefix := "DOG_STATSD_MOGRIFIER_" + name
		tags, ok := splitPairs(e.values[prefix+"_TAGS"], ":")
		if !ok {
			e.refuseVariable(prefix+"_TAGS", "key:value,key:value")
		}
		rules = append(rules, StatsdRule{Pattern: e.values[prefix+"_PATTERN"], Name: e.values[prefix+"_NAME"], Tags: tags})
	}
	e.set("statsd.rules", statsdRulesText(rules), names)
}

// wantsTags reports whether tags are wanted on statistics that are not sent.
func (e *envoyEnvironment) wantsTags() bool {
	return e.values["EXTRA_TAGS"] != "" && !e.isTrue("DISABLE_STATS") && !e.wantsStatsd()
}
