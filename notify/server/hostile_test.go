package server

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// hostile are the first bytes of a connection, and what becomes of it.
func TestHostileFrames(t *testing.T) {
	fixed := func(magic byte, hl uint16, tl uint32) []byte {
		b := []byte{magic, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}
		binary.BigEndian.PutUint16(b[2:], hl)
		binary.BigEndian.PutUint32(b[4:], tl)
		return b
	}
	r := newRig(t, nil)
	for _, tc := range []struct {
		name   string
		give   []byte
		answer bool // ERROR_COMM before the end
	}{
		{"http", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), false},
		{"rocketmq", []byte{0, 0, 0, 100, 0, 0, 0, 50, '{'}, false},
		{"tls", []byte{0x16, 3, 1, 2, 0, 1, 0}, false},
		{"negative header length", fixed(0x80, 0x8000, 10), true},
		{"header longer than the frame", fixed(0x80, 11, 10), true},
		{"2 GiB", fixed(0x80, 0, 0x7fffffff), true},
		{"negative total", fixed(0x80, 0, 0xffffffff), true},
		{"broken response", append([]byte{0x81, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 1}, 0, 0, 0, 0), false},
		{"good frames, then garbage", append(fixed(0x80, 0, 0), 'x'), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := r.dial()
			c.t = t
			c.write(tc.give)
			var got []wire.Frame
			for {
				f, err := c.tryRead(patience)
				if err != nil {
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatal("the connection was not closed")
					}
					break
				}
				got = append(got, f)
			}
			if comm := len(got) > 0 && got[len(got)-1].Status == wire.StatusComm; comm != tc.answer {
				t.Errorf("answers %+v, want ERROR_COMM: %v", got, tc.answer)
			}
		})
	}
	// Everybody else is served.
	c := r.dial()
	c.metadata(0, "S-a")
}

// Law 9: frames with any bytes changed are answered or end their connection; nothing panics and everybody else is served.
func TestLaw9MutatedFramesNeverPanic(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, nil)
	var m wire.Metadata
	m.Clients = []wire.ClientInfo{{Group: []byte("S-a")}, {Group: []byte("P-test")}}
	m.Build = []wire.Property{wire.FeatureProperty(wire.AllFeatures)}
	credit := wire.Credit{Group: []byte("S-a"), Messages: 100}
	var e wire.AckEncoder
	list := wire.MessageHeader{ID: make([]byte, 16), Topic: []byte("T"), Type: []byte("x"), Group: []byte("g"), Committed: true}
	frames := [][]byte{}
	for _, f := range []struct {
		op           wire.Opcode
		header, body []byte
	}{
		{wire.OpMetadata, nil, m.Append(nil)},
		{wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-a"), nil},
		{wire.OpCredit, credit.Append(nil), nil},
		{wire.OpSend, header(1, "T", "x"), []byte("body")},
		{wire.OpAckBatch, nil, e.Append(nil, wire.AckRun{First: 1, Last: 3, Status: wire.StatusError, Text: []byte("no")})},
		{wire.OpUnsubscribe, binding(wire.Fanout, "T", "", "S-a"), nil},
		{wire.OpSendList, nil, wire.AppendListMessage(nil, &list, []byte("x"))},
		{wire.OpDummy, []byte("x"), nil},
	} {
		b, err := wire.AppendRequest(nil, f.op, 7, f.header, f.body)
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, b)
	}
	ack, _ := wire.AppendResponse(nil, wire.OpDeliver, wire.NoError, 0, nil, nil)
	frames = append(frames, ack)
	for range 150 {
		nc, err := net.Dial("tcp", r.srv.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		var all []byte
		if rng.IntN(3) > 0 {
			all = append(all, frames[0]...)
		}
		for range 1 + rng.IntN(8) {
			f := slices.Clone(frames[rng.IntN(len(frames))])
			for range rng.IntN(4) {
				// Mostly behind the fixed part, so that the frame stays sound.
				if at := rng.IntN(len(f)); at >= wire.RequestFixed || rng.IntN(10) == 0 {
					f[at] = byte(rng.Uint32())
				}
			}
			all = append(all, f...)
		}
		_, _ = nc.Write(all)
		_ = nc.(*net.TCPConn).CloseWrite()
		_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("neither answered nor closed: %x", all)
		}
		_ = nc.Close()
	}
	if s := r.srv.Stats(); s.Panics != 0 {
		t.Errorf("%d panics", s.Panics)
	}
	c := r.dial()
	c.metadata(0, "S-a")
}
