// Package access says who may do what: by tokens, of which files hold only the SHA-256,
// and by the names in client certificates. A Gate knows the callers of the admin API and
// their roles, and Callers those of the limits. It imports yamlfile and reload, and knows
// neither gRPC nor HTTP.
package access
