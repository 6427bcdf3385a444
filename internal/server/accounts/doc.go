// Package accounts bounds the bytes that callers make the process hold: each
// connection of gRPC and HTTP has an account, which its requests and answers are
// charged to. It imports gRPC, and nothing of the daemon.
package accounts
