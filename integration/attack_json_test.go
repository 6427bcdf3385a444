package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"
)

// The paths that take JSON, and how a body begins and ends there.
var jsonPaths = []struct{ path, begin, end string }{
	{"/json", `{"domain":"x","descriptors":`, `}`},
	{"/v1/take", `{"domain":"x","descriptors":`, `}`},
	{"/v1/give-back", `{"take":{"domain":"x","descriptors":`, `}}`},
	{"/v1/settle", `{"domain":"x","id":"x","descriptors":`, `}`},
}

func jsonAttackers() []attacker {
	const size = 4_300_000
	list := func(item string) string { return "[" + strings.Repeat(item+",", size/(len(item)+1)-1) + item + "]" }
	return []attacker{
		{"json of empty descriptors", postAll(list(`{}`))},
		{"json of empty entries", postAll(`[{"entries":` + list(`{}`) + `}]`)},
		{"json that is deep", postAll(strings.Repeat("[", size/2) + strings.Repeat("]", size/2))},
		{"json of one long text", postAll(`[{"entries":[{"key":"user","value":"` + strings.Repeat("x", size) + `"}]}]`)},
		{"json that says a field again and again", postAll(`[]` + strings.Repeat(`,"descriptors":[{"entries":[{"key":"user"}]}]`, size/46))},
		{"json of unknown fields", postAll(`[]` + strings.Repeat(`,"a":{}`, size/7))},
		{"json of moments", func(ctx context.Context, v *target) {
			body := `{"take":{"domain":"x"},"takenAt":` + list("1") + `}`
			together(4, func() { again(ctx, 100*time.Millisecond, func() { post(ctx, v, "/v1/give-back", body, nil) }) })
		}},
		{"ids without end", idsWithoutEnd},
		{"json in gzip", postGzip},
		{"http bodies that never end", slowBodies},
		{"http answers that nobody reads", unreadHTTP},
	}
}

// postAll posts a list of descriptors to every path.
func postAll(descriptors string) func(ctx context.Context, v *target) {
	return func(ctx context.Context, v *target) {
		together(3, func() {
			again(ctx, 100*time.Millisecond, func() {
				for _, p := range jsonPaths {
					post(ctx, v, p.path, p.begin+descriptors+p.end, nil)
				}
			})
		})
	}
}

// idsWithoutEnd makes up ids of takes that can be settled for a day, and settles others to
// the most that may be.
func idsWithoutEnd(ctx context.Context, v *target) {
	const user = `"descriptors":[{"entries":[{"key":"user","value":"ids"}],"cost":`
	together(3, func() {
		again(ctx, 0, func() {
			id := fmt.Sprintf("%064x", rand.Uint64())
			post(ctx, v, "/v1/take", `{"domain":"api","id":"`+id+`","settleWithin":"86400s",`+user+`1}]}`, nil)
			post(ctx, v, "/v1/settle", `{"domain":"api","id":"`+id+`",`+user+`0}]}`, nil)
			post(ctx, v, "/v1/settle", `{"domain":"api","id":"`+id[1:]+`",`+user+`4503599627370496}]}`, nil)
		})
	})
}

func post(ctx context.Context, v *target, path, body string, header http.Header) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+v.http+path, strings.NewReader(body))
	if err != nil {
		panic(err) // the text is above
	}
	if header != nil {
		r.Header = header
	}
	if answer, err := http.DefaultClient.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
}

func postGzip(ctx context.Context, v *target) {
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	_, _ = z.Write(bytes.Repeat([]byte("0"), 100<<20))
	_ = z.Close()
	again(ctx, 100*time.Millisecond, func() { post(ctx, v, "/json", body.String(), http.Header{"Content-Encoding": {"gzip"}}) })
}

// slowBodies sends most of a body and then nothing.
func slowBodies(ctx context.Context, v *target) {
	const size = 1_000_000
	text := strings.Repeat(" ", size)
	again(ctx, 100*time.Millisecond, func() {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", v.http)
		if err != nil {
			return
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		go func() {
			_, _ = fmt.Fprintf(conn, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size+10, text)
		}()
	})
}

// unreadHTTP asks for long answers and reads none.
func unreadHTTP(ctx context.Context, v *target) {
	for _, address := range []string{v.http, v.admin} {
		go again(ctx, 200*time.Millisecond, func() {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			pages := "GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /rlconfig HTTP/1.1\r\nHost: x\r\n\r\n"
			_, _ = io.WriteString(conn, strings.Repeat(pages, 20))
		})
	}
	<-ctx.Done()
}
