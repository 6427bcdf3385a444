// Package kubernetes has the tests of what is deployed to Kubernetes: deploy/kubernetes,
// as kustomize builds it, and the chart deploy/helm/ratelimitd, rendered. Both are held
// against the types of Kubernetes' API, against each other, and against the daemon. It
// is a module of its own, so that the daemon depends on none of these.
package kubernetes
