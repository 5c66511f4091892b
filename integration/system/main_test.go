package system

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
)

var programs proc.Programs

// shared is one server for the tests that leave it as it was; those that stop a server or look at all of its data start their own.
var shared struct {
	once   sync.Once
	server *proc.Server
	err    error
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fusionmq-system-")
	if err == nil {
		defer os.RemoveAll(dir)
		programs, err = proc.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	sharedDir = filepath.Join(dir, "data")
	code := m.Run()
	if s := shared.server; s != nil {
		select {
		case <-s.Exited():
			fmt.Fprintf(os.Stderr, "the shared server ended during the tests:\n%s\n", s.Output())
			code = 1
		default:
		}
		if exit, _, err := s.Stop(10 * time.Second); exit != 0 || err != nil {
			fmt.Fprintf(os.Stderr, "the shared server exits with %d, %v:\n%s\n", exit, err, s.Output())
			code = 1
		}
	}
	return code
}

var sharedDir string

// server is the shared server.
func server(t *testing.T) *proc.Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = proc.Start(programs.Server, sharedDir) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// start runs a server of the test's own on dir.
func start(t *testing.T, dir string, args ...string) *proc.Server {
	t.Helper()
	s, err := proc.Start(programs.Server, dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("output of the server:\n%s", s.Output())
		}
	})
	return s
}

// dial is a raw connection to one listener of s.
func dial(t *testing.T, s *proc.Server, listener string) *raw.Conn {
	t.Helper()
	c, err := raw.Dial(s.Addr[listener])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// createTopic makes a topic with a name of its own.
func createTopic(t *testing.T, s *proc.Server, topic string, queues int) {
	t.Helper()
	if err := raw.CreateTopic(dial(t, s, "broker"), topic, queues); err != nil {
		t.Fatalf("create %s: %v", topic, err)
	}
}
