// Package adminapi is the API for those who run the daemon, ratelimit.admin.v1, over
// gRPC and as JSON under /admin/v1, and who may call which of its methods. It decides
// nothing: it shows the rules and makes the changes in a store of assignments. It imports
// access, assign, rules, fleet, endpoint, overload and pages, and the API's messages.
//
// A method has its right in calls.go, and its path in http.go and gateway/routes.yaml.
// What Decider.Explain finds is written into a message by explain.go, which the command
// explain prints as a tree.
package adminapi
