// Package scrape writes the page of metrics for Prometheus: what the client library
// gathers, and counters with very many series one after the other, so that a page
// takes the same memory however long it is. It imports pages.
package scrape
