// Package adminapi is the API for those who run the daemon, ratelimit.admin.v1, over
// gRPC and as JSON under /admin/v1, and who may call which of its methods. It
// decides nothing: it shows the rules and has a store of assignments make the
// changes. It imports access, assign, config, fleet, endpoint, pages and accounts, and
// the API's messages.
package adminapi
