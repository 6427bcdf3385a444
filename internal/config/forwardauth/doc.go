// Package forwardauth reads the file for forward auth: which proxies may ask
// with a path alone, and by which parts of a request its limits count. It imports
// bucket, reload and yamlfile, and knows neither rules nor HTTP servers.
package forwardauth
