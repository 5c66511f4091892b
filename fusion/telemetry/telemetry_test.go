package telemetry

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestSeriesKeepsWhoIsIn(t *testing.T) {
	var s Series
	scrape := func(limit int, keys ...string) (in string, out int) {
		s.Begin()
		for _, k := range keys {
			if s.Allow(k, limit) {
				in += k
			}
		}
		return in, s.LeftOut()
	}
	for i, tc := range []struct {
		keys    string
		limit   int
		want    string
		wantOut int
	}{
		{"bc", 2, "bc", 0},
		{"abc", 2, "bc", 1}, // a sorts first but came later
		{"abd", 2, "b", 2},  // c is not there any more, but only the next scrape knows
		{"abd", 2, "ab", 1}, // its place is free now
		{"abd", 3, "abd", 0},
		{"abd", 0, "abd", 0}, // a smaller limit takes nothing away that is in
	} {
		if in, out := scrape(tc.limit, strings.Split(tc.keys, "")...); in != tc.want || out != tc.wantOut {
			t.Errorf("scrape %d of %q with limit %d = %q and %d left out, want %q and %d", i, tc.keys, tc.limit, in, out, tc.want, tc.wantOut)
		}
	}
}

func TestPageHasRuntimeAndOwnMetrics(t *testing.T) {
	p := NewPage(map[string]string{"cluster": "c1"})
	p.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fusionmq_x", Help: "x."}, func() float64 { return 7 }))
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{`fusionmq_x{cluster="c1"} 7`, "go_memstats_mallocs_total ", "process_cpu_seconds_total "} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the page lacks %q:\n%.500s", want, w.Body)
		}
	}
}

func TestMemory(t *testing.T) {
	if got := AnonymousBytes(); got < 1<<20 || got > 4<<30 {
		t.Errorf("AnonymousBytes = %d", got)
	}
	if got := HeapBytes(); got < 1<<10 || got > 4<<30 {
		t.Errorf("HeapBytes = %d", got)
	}
	t.Setenv("GOMEMLIMIT", "")
	before := LimitMemory(0)
	if before < 64<<20 {
		t.Errorf("LimitMemory(0) = %d, want a share of this machine", before)
	}
	if got := LimitMemory(1 << 30); got != 1<<30 {
		t.Errorf("LimitMemory(1 GiB) = %d", got)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	if got := LimitMemory(2 << 30); got != 1<<30 {
		t.Errorf("LimitMemory with GOMEMLIMIT = %d, want what the runtime has (1 GiB)", got)
	}
	t.Setenv("GOMEMLIMIT", "")
	LimitMemory(before)
}

func TestLog(t *testing.T) {
	var b bytes.Buffer
	var level Level
	log := NewLogger(&b, false, &level)
	Events(log, "store")(int(slog.LevelWarn), "disk slow", []any{"took_ms", 7})
	SetLevel(&level, "error")
	Events(log, "store")(int(slog.LevelWarn), "not shown", nil)
	if got := b.String(); !strings.Contains(got, `level=WARN msg="disk slow" component=store took_ms=7`) || strings.Count(got, "\n") != 1 {
		t.Errorf("log:\n%s", got)
	}
	b.Reset()
	NewLogger(&b, true, &level).Error("x", "k", 1)
	if !strings.HasPrefix(b.String(), `{"time":`) || !strings.Contains(b.String(), `"k":1`) {
		t.Errorf("JSON log: %s", b.String())
	}
	if null, err := os.Open(os.DevNull); err != nil || IsTerminal(null) {
		t.Errorf("%s is a terminal (%v)", os.DevNull, err)
	}
}

func TestProfilesAreSent(t *testing.T) {
	got := make(chan string, 16)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case got <- r.URL.String():
		default:
		}
	}))
	defer s.Close()
	stop, err := Profile(s.URL, "app-1", map[string]string{"broker": "b1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil { // sends what it has
		t.Fatal(err)
	}
	select {
	case u := <-got:
		if name, _ := url.QueryUnescape(u); !strings.Contains(name, "app-1") || !strings.Contains(name, "broker=b1") {
			t.Errorf("profiles went to %s", u)
		}
	case <-time.After(20 * time.Second):
		t.Error("no profile was sent")
	}
}
