// Package kubernetes checks the manifests of infra/kubernetes against the types of Kubernetes
// and KEDA, without a cluster.
package kubernetes
