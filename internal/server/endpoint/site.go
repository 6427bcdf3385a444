package endpoint

import (
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CheckSite refuses a request that a page of another site made a browser send: the browser
// may have a certificate for this port, or reach a port that the page's owner does not. Its
// error is a status.
func CheckSite(r *http.Request) error {
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return status.Error(codes.PermissionDenied, "a page of another site made this request (sec-fetch-site)")
		}
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || u.Scheme != scheme || !strings.EqualFold(u.Host, r.Host) {
			return status.Error(codes.PermissionDenied, "a page of another site made this request (origin)")
		}
	}
	return nil
}
