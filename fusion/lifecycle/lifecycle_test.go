package lifecycle

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// script makes parts that write down what happens to them.
type script struct{ log []string }

func (s *script) part(name string, startErr, stopErr error) Part {
	return Part{
		Name:  name,
		Start: func(context.Context) error { s.log = append(s.log, "start "+name); return startErr },
		Stop:  func(context.Context) error { s.log = append(s.log, "stop "+name); return stopErr },
	}
}

var errBoom = errors.New("boom")

func TestGroupOrder(t *testing.T) {
	for _, tc := range []struct {
		name    string
		give    func(*script) []Part
		want    string
		wantErr string
	}{
		{"stops in the opposite order", func(s *script) []Part {
			return []Part{s.part("store", nil, nil), s.part("service", nil, nil), s.part("listener", nil, nil)}
		}, "start store, start service, start listener, stop listener, stop service, stop store", ""},
		{"a failed start stops what runs, but not what failed", func(s *script) []Part {
			return []Part{s.part("store", nil, nil), s.part("service", nil, nil), s.part("listener", errBoom, nil), s.part("http", nil, nil)}
		}, "start store, start service, start listener, stop service, stop store", "listener: boom"},
		{"one that cannot stop does not keep the others", func(s *script) []Part {
			return []Part{s.part("store", nil, nil), s.part("service", nil, errBoom), s.part("listener", nil, nil)}
		}, "start store, start service, start listener, stop listener, stop service, stop store", "stop service: boom"},
		{"nil functions", func(s *script) []Part { return []Part{{Name: "a"}, s.part("b", nil, nil)} }, "start b, stop b", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s script
			g := New(tc.give(&s)...)
			err := errors.Join(g.Start(t.Context()), g.Stop(t.Context()), g.Stop(t.Context()))
			if got := strings.Join(s.log, ", "); got != tc.want {
				t.Errorf("events\n got %s\nwant %s", got, tc.want)
			}
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (!errors.Is(err, errBoom) || err.Error() != tc.wantErr) {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
		})
	}
}

func TestGroupStartEndsWithItsContext(t *testing.T) {
	var s script
	ctx, cancel := context.WithCancelCause(t.Context())
	first := s.part("first", nil, nil)
	first.Start = func(context.Context) error { cancel(errBoom); return nil }
	stopCtxErr := errors.New("not called")
	first.Stop = func(ctx context.Context) error { stopCtxErr = ctx.Err(); return nil }
	if err := New(first, s.part("second", nil, nil)).Start(ctx); !errors.Is(err, errBoom) {
		t.Errorf("Start = %v", err)
	}
	if len(s.log) > 0 {
		t.Errorf("the second part saw %v", s.log)
	}
	if stopCtxErr != nil {
		t.Errorf("Stop of the first part: context %v, want a live one", stopCtxErr)
	}
}
