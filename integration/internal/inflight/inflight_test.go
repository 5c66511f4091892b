package inflight

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// echo connects to a server that answers each line "number text" with itself, the second of two first, and stays silent to "hush".
func echo(t *testing.T, closed error) *Conn[string] {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		lines := bufio.NewScanner(server)
		for held := ""; lines.Scan(); {
			switch line := lines.Text(); {
			case strings.HasSuffix(line, "hush"):
			case strings.HasSuffix(line, "bye"):
				return
			case held == "":
				held = line
			default:
				fmt.Fprintf(server, "%s\n%s\n", line, held)
				held = ""
			}
		}
	}()
	c := New[string](client, closed)
	c.Start(func() {
		for lines := bufio.NewScanner(client); lines.Scan(); {
			number, text, _ := strings.Cut(lines.Text(), " ")
			id, _ := strconv.ParseUint(number, 10, 32)
			if done := c.Take(uint32(id)); done != nil {
				done(text, nil)
			}
		}
	})
	return c
}

func (c *Conn[A]) ask(text string, done func(A, error)) bool {
	out, id, ok := c.Begin(done)
	if ok {
		c.End(fmt.Appendf(out, "%d %s\n", id, text))
	}
	return ok
}

func TestAnswersFindTheirRequests(t *testing.T) {
	c := echo(t, errors.New("closed"))
	defer c.Close()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Add(1)
		want := fmt.Sprint("text ", i)
		if !c.ask(want, func(got string, err error) {
			defer wg.Done()
			if got != want || err != nil {
				t.Errorf("%q is answered %q, %v", want, got, err)
			}
		}) {
			t.Fatal("the connection has ended")
		}
	}
	wg.Wait()
	if n := c.Waiting(); n != 0 {
		t.Errorf("%d requests wait when all are answered", n)
	}
}

func TestTheEndIsToldToAllThatWaitAndNoMoreIsTaken(t *testing.T) {
	closed := errors.New("closed")
	c := echo(t, closed)
	told := make(chan error, 10)
	for range cap(told) {
		c.ask("hush", func(_ string, err error) { told <- err })
	}
	if n := c.Waiting(); n != cap(told) {
		t.Errorf("%d requests wait, want %d", n, cap(told))
	}
	c.Append([]byte("0 bye\n"))
	<-c.Gone()
	for range cap(told) {
		if err := <-told; !errors.Is(err, closed) {
			t.Errorf("a request that waits gets %v", err)
		}
	}
	if c.ask("late", func(string, error) { t.Error("a request after the end is told something") }) {
		t.Error("a request is taken after the end")
	}
	c.Close() // again
}
