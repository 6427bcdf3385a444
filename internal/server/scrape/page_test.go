package scrape_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/ratelimitd/ratelimitd/internal/server/scrape"
)

// hostile are values of labels that a careless writer gets wrong.
var hostile = []string{"", "plain", "a\nratelimitd_x 7", `"} 1`, `\`, `a\nb`, "\x00\x7f\r", "\u2028 ü 日本", "{}", strings.Repeat("x", 300)}

// numbers are values that the formats spell in different ways.
var numbers = []uint64{0, 1, 2, 999_999, 1_000_000, 20_999_999, 123_456_789_012, 1e21 / 100, 1<<53 + 1, 1<<64 - 1}

// large are families whose series the test chooses, and the same in a registry.
func large(t testing.TB, registry prometheus.Registerer) []scrape.Family {
	t.Helper()
	type family struct {
		name, help string
		labels     []string
		series     map[[3]string]uint64
	}
	some := make(map[[3]string]uint64)
	for i, a := range hostile {
		for j, b := range hostile {
			some[[3]string{a, b, "c"}] = numbers[(i+j)%len(numbers)]
		}
	}
	many := make(map[[3]string]uint64)
	for i := range 5000 {
		many[[3]string{fmt.Sprint("user ", i), "allowed"}] = uint64(i)
	}
	var all []scrape.Family
	for _, f := range []family{
		{"z_other_hits", `Hits "without" a suffix, with a \ and` + "\nlines.", []string{"a", "b", "c"}, some},
		{"m_decisions_total", "Decisions.", []string{"rule", "value"}, many},
		{"a_alone_total", "One.", nil, map[[3]string]uint64{{}: 3}},
		{"e_empty_total", "None.", []string{"a"}, nil},
	} {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.name, Help: f.help}, f.labels)
		registry.MustRegister(constant{vec: vec, series: f.series, labels: len(f.labels)})
		keys := slices.SortedFunc(maps.Keys(f.series), func(a, b [3]string) int { return slices.Compare(a[:], b[:]) })
		all = append(all, scrape.Family{Name: f.name, Help: f.help, Labels: f.labels, Each: func(s *scrape.Series) {
			for _, labels := range keys {
				for i := range f.labels {
					if i%2 == 0 {
						s.Set(i, labels[i])
					} else {
						s.SetBytes(i, []byte(labels[i]))
					}
				}
				if !s.Write(f.series[labels]) {
					return
				}
			}
		}})
	}
	return all
}

// constant collects series of a counter without a moment of creation.
type constant struct {
	vec    *prometheus.CounterVec
	series map[[3]string]uint64
	labels int
}

func (c constant) Describe(out chan<- *prometheus.Desc) { c.vec.Describe(out) }

func (c constant) Collect(out chan<- prometheus.Metric) {
	descs := make(chan *prometheus.Desc, 1)
	c.vec.Describe(descs)
	desc := <-descs
	for labels, n := range c.series {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels[:c.labels]...)
	}
}

// small returns a registry with several kinds of metrics.
func small() *prometheus.Registry { return registered(collectors()) }

func registered(all []prometheus.Collector) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(all...)
	return registry
}

func collectors() []prometheus.Collector {
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "h_seconds", Help: "Seconds.", Buckets: []float64{.1, 1}, NativeHistogramBucketFactor: 1.1,
	})
	seconds.Observe(.05)
	seconds.(prometheus.ExemplarObserver).ObserveWithExemplar(.5, prometheus.Labels{"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"})
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "zz_gauge", Help: "A gauge."})
	gauge.Set(1.5)
	return []prometheus.Collector{seconds, gauge}
}

var accepted = map[string]string{
	"text":        "",
	"openmetrics": "application/openmetrics-text;version=1.0.0",
	"protobuf":    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
}

// get returns a page, unpacked.
func get(t testing.TB, h http.Handler, target, accept string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		w.Body = bytes.NewBuffer(plain)
	}
	return w
}

// families decodes a page, and puts the messages of one family together.
func families(t testing.TB, page *httptest.ResponseRecorder) (text []string, messages int) {
	t.Helper()
	d := expfmt.NewDecoder(page.Body, expfmt.ResponseFormat(page.Header()))
	found := make(map[string]*dto.MetricFamily)
	for {
		var f dto.MetricFamily
		if err := d.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		messages++
		if before := found[f.GetName()]; before != nil {
			before.Metric = append(before.Metric, f.GetMetric()...)
		} else {
			found[f.GetName()] = &f
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		f := found[name]
		text = append(text, f.GetName()+f.GetHelp()+f.GetType().String())
		for _, m := range f.GetMetric() {
			text = append(text, m.String())
		}
	}
	slices.Sort(text)
	return text, messages
}

// The page has what the client library would write of the same series.
func TestPageIsThatOfTheLibrary(t *testing.T) {
	t.Parallel()
	both := collectors()
	gathered := registered(both)
	page := &scrape.Page{Small: registered(both), Failed: func(err error) { t.Error(err) }}
	series := large(t, gathered)
	page.Large = func() []scrape.Family { return slices.Clone(series) }
	library := promhttp.HandlerFor(gathered, promhttp.HandlerOpts{EnableOpenMetrics: true})
	for name, accept := range accepted {
		for _, compressed := range []string{"", "gzip"} {
			got, want := get(t, page, "/metrics", accept, "Accept-Encoding", compressed), get(t, library, "/metrics", accept, "Accept-Encoding", compressed)
			for _, header := range []string{"Content-Type", "Content-Encoding"} {
				if got.Header().Get(header) != want.Header().Get(header) {
					t.Errorf("%s: %s is %q, want %q", name, header, got.Header().Get(header), want.Header().Get(header))
				}
			}
			if name == "protobuf" {
				ours, messages := families(t, got)
				theirs, _ := families(t, want)
				if !slices.Equal(ours, theirs) {
					t.Errorf("%s %s: %d lines, want %d", name, compressed, len(ours), len(theirs))
				}
				if messages < 8 {
					t.Errorf("a family of 5,000 series is in one message: %d in all", messages)
				}
				continue
			}
			ours, theirs := lines(got.Body.String()), lines(want.Body.String())
			if !slices.Equal(ours, theirs) {
				for i := range min(len(ours), len(theirs)) {
					if ours[i] != theirs[i] {
						t.Fatalf("%s %s: line %d is\n%s\nwant\n%s", name, compressed, i, ours[i], theirs[i])
					}
				}
				t.Errorf("%s %s: %d lines, want %d", name, compressed, len(ours), len(theirs))
			}
		}
	}
}

// lines returns those of a page, those of each metric sorted.
func lines(page string) []string { return slices.Sorted(slices.Values(strings.Split(page, "\n"))) }

func TestExemplarsAndNativeHistogramsAreShown(t *testing.T) {
	t.Parallel()
	page := &scrape.Page{Small: small(), Large: func() []scrape.Family { return nil }, Failed: func(err error) { t.Error(err) }}
	text := get(t, page, "/metrics", accepted["openmetrics"]).Body.String()
	if !strings.Contains(text, ` # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 0.5 `) || !strings.HasSuffix(text, "\n# EOF\n") {
		t.Errorf("OpenMetrics:\n%s", text)
	}
	if text := get(t, page, "/metrics", "").Body.String(); strings.Contains(text, "trace_id") || strings.Contains(text, "EOF") {
		t.Errorf("text:\n%s", text)
	}
	all, _ := families(t, get(t, page, "/metrics", accepted["protobuf"]))
	if text := strings.Join(all, "\n"); !strings.Contains(text, "positive_span") || !strings.Contains(text, "trace_id") {
		t.Errorf("protobuf:\n%s", text)
	}
}

func TestNamesChooseFamilies(t *testing.T) {
	t.Parallel()
	page := &scrape.Page{Small: small(), Failed: func(err error) { t.Error(err) }}
	series := large(t, prometheus.NewRegistry())
	page.Large = func() []scrape.Family { return slices.Clone(series) }
	got := get(t, page, "/metrics?name[]=zz_gauge&name[]=a_alone_total&name[]=none", "").Body.String()
	if want := "# HELP a_alone_total One.\n# TYPE a_alone_total counter\na_alone_total 3\n# HELP zz_gauge A gauge.\n# TYPE zz_gauge gauge\nzz_gauge 1.5\n"; got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestWhatCannotBeGatheredIsTold(t *testing.T) {
	t.Parallel()
	for _, left := range []bool{true, false} {
		registry := prometheus.NewRegistry()
		if left {
			registry = small()
		}
		registry.MustRegister(broken{})
		var failed error
		page := &scrape.Page{Small: registry, Large: func() []scrape.Family { return nil }, Failed: func(err error) { failed = err }}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if (w.Code == 200) != left || failed == nil || strings.Contains(w.Body.String(), "zz_gauge") != left {
			t.Errorf("something left: %t; %d, error %v\n%s", left, w.Code, failed, w.Body)
		}
	}
}

// broken cannot be collected.
type broken struct{}

func (broken) Describe(chan<- *prometheus.Desc) {}

func (broken) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.NewInvalidMetric(prometheus.NewDesc("x", "x", nil, nil), errors.New("broken"))
}

// A reader that goes away ends the page.
func TestNothingIsWrittenToWhoeverIsGone(t *testing.T) {
	t.Parallel()
	written := 0
	page := &scrape.Page{Small: prometheus.NewRegistry(), Failed: func(error) {}, Large: func() []scrape.Family {
		endless := func(s *scrape.Series) {
			for s.Write(7) {
				written++
			}
		}
		return []scrape.Family{{Name: "a_total", Each: endless}, {Name: "b_total", Each: endless}}
	}}
	for _, accept := range accepted {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", accept)
		page.ServeHTTP(gone{httptest.NewRecorder()}, r)
	}
	if written > 3*100_000 {
		t.Errorf("%d series are written to nobody", written)
	}
}

type gone struct{ http.ResponseWriter }

func (gone) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestASeriesThatShowsNoLabelHasNoBraces(t *testing.T) {
	t.Parallel()
	page := &scrape.Page{Small: prometheus.NewRegistry(), Failed: func(err error) { t.Error(err) }, Large: func() []scrape.Family {
		return []scrape.Family{{Name: "a_total", Help: "A.", Labels: []string{"others"}, Optional: "others", Each: func(s *scrape.Series) { s.Write(7) }}}
	}}
	for name, want := range map[string]string{"text": "\na_total 7\n", "openmetrics": "\na_total 7.0\n"} {
		if got := get(t, page, "/metrics", accepted[name]).Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAcceptedEncodings(t *testing.T) {
	t.Parallel()
	page := &scrape.Page{Small: small(), Large: func() []scrape.Family { return nil }, Failed: func(err error) { t.Error(err) }}
	for header, want := range map[string]string{
		"": "", "gzip": "gzip", "deflate, gzip;q=0.5": "gzip", "gzip;q=0": "", "gzip;q=0.000": "", "zstd": "", "identity,*": "gzip", "gzip ; q=1": "gzip",
	} {
		if got := get(t, page, "/metrics", "", "Accept-Encoding", header).Header().Get("Content-Encoding"); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}

// However many series there are, a page takes little memory.
func TestPageAllocatesNothingForASeries(t *testing.T) {
	const series = 200_000
	value := []byte("user 123456")
	page := &scrape.Page{Small: prometheus.NewRegistry(), Failed: func(err error) { t.Error(err) }, Large: func() []scrape.Family {
		return []scrape.Family{{Name: "a_total", Help: "A.", Labels: []string{"rule", "value"}, Each: func(s *scrape.Series) {
			s.Set(0, "user")
			for range series {
				s.SetBytes(1, value)
				s.Write(1e6)
			}
		}}}
	}}
	for name, accept := range accepted {
		for _, compressed := range []string{"identity", "gzip"} {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Accept", accept)
			r.Header.Set("Accept-Encoding", compressed)
			if n := testing.AllocsPerRun(1, func() { page.ServeHTTP(discarding{http.Header{}}, r) }); n > 1000 {
				t.Errorf("%s, %s: %v allocations", name, compressed, n)
			}
		}
	}
}

type discarding struct{ header http.Header }

func (d discarding) Header() http.Header         { return d.header }
func (d discarding) Write(p []byte) (int, error) { return len(p), nil }
func (d discarding) WriteHeader(int)             {}
