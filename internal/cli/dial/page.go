package dial

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxPageBytes bounds a page in bytes: that of metrics has a few lines for each rule.
const maxPageBytes = 256 << 20

// Page returns a page of the daemon's admin port, such as /metrics, and the address.
func (t *Target) Page(ctx context.Context, path string) (page io.Reader, address string, err error) {
	address, config, token, err := t.where()
	if err != nil {
		return nil, address, err
	}
	url := "http://" + address + path
	if config != nil {
		url = "https://" + address + path
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, address, fmt.Errorf("flag --%s: %w", t.port.flag, err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+string(token))
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return nil, address, fmt.Errorf("%s cannot be reached: %w\n%s", address, err, t.advice())
	}
	defer response.Body.Close()
	var text strings.Builder
	_, err = io.Copy(&text, io.LimitReader(response.Body, maxPageBytes))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200s", response.Status, strings.TrimSpace(text.String()))
	}
	if err != nil {
		return nil, address, fmt.Errorf("%s answers for %s: %w", address, path, err)
	}
	return strings.NewReader(text.String()), address, nil
}
