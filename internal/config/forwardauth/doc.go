// Package forwardauth reads the file for forward auth: which proxies may ask with just a
// path, and which parts of a request its limits count by. It imports bucket, reload and
// yamlfile, and knows neither rules nor HTTP servers.
package forwardauth
