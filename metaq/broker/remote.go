package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/metaq/nameserver"
	"github.com/fusionmq/fusionmq/metaq/remoting"
)

// Remote is a name server in another process, FusionMQ's or Apache's. It keeps one connection, because a name server
// forgets a broker whose connection closes, and registers from a goroutine of its own, so that a name server that is away
// delays nobody. Changes that come while it talks go out together. After a new connection everything is sent again.
type Remote struct {
	addr string
	log  *slog.Logger

	kick   chan struct{} // room for one
	quit   chan struct{}
	done   sync.WaitGroup
	failed limiter

	mu struct {
		sync.Mutex
		started, ended bool
		reg            nameserver.Registration // the newest, without topics
		all            map[string]remoting.TopicConfig
		changed        map[string]struct{}
		full           bool // all is to be sent, not only what changed
	}
}

const (
	remoteTimeout = 3 * time.Second // to connect, and for each answer
	remoteRetry   = 5 * time.Second
	remoteTopics  = 2000 // topics in one frame: 70,000 of them would not fit into 16 MiB
)

// NewRemote makes the registrar of the name server at host:port. Nothing is connected before the first Register.
func NewRemote(addr string, log *slog.Logger) *Remote {
	r := &Remote{addr: addr, log: log.With("nameserver", addr), kick: make(chan struct{}, 1), quit: make(chan struct{})}
	r.mu.all = map[string]remoting.TopicConfig{}
	r.mu.changed = map[string]struct{}{}
	return r
}

// Register implements Registrar; it does not wait for the name server.
func (r *Remote) Register(reg nameserver.Registration) error {
	r.mu.Lock()
	if reg.Complete {
		clear(r.mu.all)
		r.mu.full = true
	}
	for name, t := range reg.Topics {
		r.mu.all[name] = t
		r.mu.changed[name] = struct{}{}
	}
	reg.Topics = nil
	r.mu.reg = reg
	if !r.mu.started && !r.mu.ended {
		r.mu.started = true
		r.done.Add(1)
		go r.run()
	}
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
	return nil
}

// Unregister implements Registrar: it ends the goroutine, which says goodbye when it is connected.
func (r *Remote) Unregister(nameserver.Registration) error {
	r.mu.Lock()
	if !r.mu.ended {
		r.mu.ended = true
		close(r.quit)
	}
	r.mu.Unlock()
	r.done.Wait()
	return nil
}

func (r *Remote) run() {
	defer r.done.Done()
	var s *session
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-r.kick:
		case <-retry.C:
		case <-r.quit:
			if s != nil {
				_ = s.goodbye(r.last()) // the connection closes with us: it forgets the broker anyway
				s.conn.Close()
			}
			return
		}
		var err error
		if s, err = r.tell(s); err != nil {
			if r.failed.allow(time.Now()) {
				r.log.Warn("name server not reached", "error", err, "retry_ms", remoteRetry.Milliseconds())
			}
			retry.Reset(remoteRetry)
		}
	}
}

func (r *Remote) last() nameserver.Registration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.reg
}

// tell sends what is to be told, over a new connection when there is none, and returns the connection unless it is lost.
func (r *Remote) tell(s *session) (*session, error) {
	if s == nil {
		conn, err := net.DialTimeout("tcp", r.addr, remoteTimeout)
		if err != nil {
			return nil, err
		}
		s = &session{conn: conn}
		r.mu.Lock()
		r.mu.full = true
		r.mu.Unlock()
	}
	r.mu.Lock()
	reg, full := r.mu.reg, r.mu.full
	topics := map[string]remoting.TopicConfig{}
	if full {
		maps.Copy(topics, r.mu.all)
	} else {
		for name := range r.mu.changed {
			topics[name] = r.mu.all[name]
		}
	}
	clear(r.mu.changed)
	r.mu.full = false
	r.mu.Unlock()
	if err := s.register(reg, topics); err != nil {
		s.conn.Close()
		return nil, err
	}
	return s, nil
}

// session is one connection to a name server.
type session struct {
	conn   net.Conn
	enc    remoting.Encoder
	buf    []byte
	opaque int32
}

// register sends topics in as many frames as they need. All but the last have a version of their own, because a name
// server takes topics only with a version it has not seen.
func (s *session) register(reg nameserver.Registration, topics map[string]remoting.TopicConfig) error {
	names := slices.Sorted(maps.Keys(topics))
	last := max(0, (len(names)-1)/remoteTopics)
	for i := range last + 1 {
		part := map[string]remoting.TopicConfig{}
		for _, n := range names[i*remoteTopics : min(len(names), (i+1)*remoteTopics)] {
			part[n] = topics[n]
		}
		version := reg.Version
		if i < last {
			version.Timestamp += int64(i) + 1
		}
		body, err := remoting.EncodeBody(remoting.RegisterBrokerBody{
			FilterServerList:            []string{},
			TopicConfigSerializeWrapper: remoting.TopicConfigTable{DataVersion: version, TopicConfigTable: part},
		})
		if err != nil {
			return err
		}
		if err := s.call(remoting.ReqRegisterBroker, reg, body); err != nil {
			return fmt.Errorf("register %d topics: %w", len(part), err)
		}
	}
	return nil
}

func (s *session) goodbye(reg nameserver.Registration) error {
	return s.call(remoting.ReqUnregisterBroker, reg, nil)
}

func (s *session) call(code int32, reg nameserver.Registration, body []byte) error {
	local, ok := s.conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return errors.New("not a TCP connection")
	}
	host := local.AddrPort().Addr()
	s.opaque++
	s.enc.Reset(s.enc.Bytes())
	s.enc.Begin(remoting.Head{Code: code, Opaque: s.opaque})
	s.enc.String("brokerName", reg.Broker)
	s.enc.String("brokerAddr", nameserver.Resolve(reg.Addr, host))
	s.enc.String("clusterName", reg.Cluster)
	s.enc.Int("brokerId", reg.ID)
	s.enc.String("haServerAddr", nameserver.Resolve(reg.HAAddr, host))
	s.enc.Bool("compressed", false)
	if err := s.enc.End(body); err != nil {
		return err
	}
	if err := s.conn.SetDeadline(time.Now().Add(remoteTimeout)); err != nil {
		return err
	}
	if _, err := s.conn.Write(s.enc.Bytes()); err != nil {
		return err
	}
	for {
		frame, err := remoting.ReadFrame(s.conn, s.buf)
		if err != nil {
			return err
		}
		s.buf = frame
		var h remoting.Header
		if _, err := h.Decode(frame); err != nil {
			return err
		}
		if !h.Response() || h.Opaque != s.opaque {
			continue // a notice of the name server
		}
		if h.Code != remoting.RespSuccess {
			return fmt.Errorf("%s: %s", remoting.ResponseName(h.Code), h.Clone().Remark)
		}
		return nil
	}
}
