// Package check holds what is in deploy/ against the API types of Kubernetes and KEDA, against the program, and against
// rules of this project, without a cluster. It is a module of its own, so that those types do not become dependencies
// of the program.
package check
