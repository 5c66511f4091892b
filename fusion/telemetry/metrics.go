package telemetry

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Page is the metrics page of one process. It has a registry of its own, so several processes in one test do not meet.
type Page struct {
	registry *prometheus.Registry
	common   prometheus.Registerer
}

// NewPage makes a page with the Go runtime's and the process's own metrics; what Register adds has the labels besides.
func NewPage(labels map[string]string) *Page {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Page{registry: r, common: prometheus.WrapRegistererWith(labels, r)}
}

// Register adds what c collects. It panics when a name is taken.
func (p *Page) Register(c prometheus.Collector) { p.common.MustRegister(c) }

// Handler serves the page; at most two scrapes run at a time.
func (p *Page) Handler() http.Handler {
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2, ErrorHandling: promhttp.ContinueOnError})
}

// Series bounds the label sets of one metric. A label set that was let in stays, so that a counter never seems to start
// again because another one came.
type Series struct {
	mu struct {
		sync.Mutex
		in  map[string]bool // the value is whether this scrape has seen it
		out int             // left out by this scrape
	}
}

// Begin starts a scrape: label sets that the last one did not see make room.
func (s *Series) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, seen := range s.mu.in {
		if !seen {
			delete(s.mu.in, k)
		} else {
			s.mu.in[k] = false
		}
	}
	s.mu.out = 0
}

// Allow says whether a label set may be on the page, when it may have at most limit.
func (s *Series) Allow(key string, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.mu.in[key]; !ok && len(s.mu.in) >= limit {
		s.mu.out++
		return false
	}
	if s.mu.in == nil {
		s.mu.in = map[string]bool{}
	}
	s.mu.in[key] = true
	return true
}

// LeftOut is how many label sets the scrape since Begin has left out.
func (s *Series) LeftOut() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.out
}
