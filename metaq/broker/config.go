package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"golang.org/x/sys/unix"
)

// Config says who a broker is and what it allows. A zero field means its default. Nothing here is fixed at creation of
// the store; all of it takes effect when the broker starts.
type Config struct {
	// Name is the broker name in routes; brokers of one name are a master and its replicas. Default "broker-a".
	Name string
	// Cluster is the cluster name, also stored with every message as CLUSTER. Default "DefaultCluster".
	Cluster string
	// ID is the broker id; 0, the default, is a master.
	ID int64
	// AdvertiseAddr is the host:port that routes give to clients, which has to be reachable by all of them. No default. With
	// an empty host (":10911") a FusionMQ name server tells each client the host under which it was reached itself.
	AdvertiseAddr string
	// StoreHost is the address inside offset message ids; the same as store.Options.StoreHost. No default.
	StoreHost netip.AddrPort
	// HAAddr is the replication address told to name servers. Default: AdvertiseAddr's host, its port + 1.
	HAAddr string
	// Region is the value of the MSG_REGION property and response field. Default "DefaultRegion".
	Region string

	// MaxBodyBytes is the largest body of a message, as it travels (maybe compressed). Default, and the most that
	// the store takes: 4 MiB.
	MaxBodyBytes int
	// MaxTopics and MaxGroups bound what clients can create by using a name. Default 100,000 each.
	MaxTopics, MaxGroups int

	// NoAutoCreateTopics refuses sends to topics that do not exist, whatever template they name, and takes TBW102 out of
	// the routes.
	NoAutoCreateTopics bool
	// NoAutoCreateGroups refuses consumer groups that were not created before.
	NoAutoCreateGroups bool
	// NoPropertyFilter refuses SQL92 subscriptions, as a RocketMQ broker does by default.
	NoPropertyFilter bool
	// DefaultTopicQueues is the queue count of TBW102, and so the most an auto-created topic gets. Default 8.
	DefaultTopicQueues int32
	// TraceTopic makes RMQ_SYS_TRACE_TOPIC with one queue at start.
	TraceTopic bool

	// MaxPullMessages and MaxPullBytes bound one answer to a pull; a single message may be larger. Default 32 and 256 KiB.
	MaxPullMessages, MaxPullBytes int
	// MaxScanEntries is how many queue entries one pull looks at when its filter rejects them. Default 800.
	MaxScanEntries int
	// MaxHold is the longest time a pull is held, whatever it asks for. Default 60 s.
	MaxHold time.Duration
	// MaxHeld is how many pulls are held at a time; further ones are told to come back, with code 2. One connection may hold as
	// many as are free, so at most half of them. Each takes about 300 bytes. Default 100,000.
	MaxHeld int
	// ReplayBytes decides where a new group starts on a queue that still has its first message: at that message when
	// at most this much log was written since, otherwise where its client says. Default 40% of physical memory.
	ReplayBytes int64

	// MaxConns is the most connections of one listener, IdleTimeout how long one may be silent. Default: as server.Config.
	MaxConns    int
	IdleTimeout time.Duration

	// MemberExpiry is how long a member stays without a heartbeat, ScanInterval how often that is looked at. Default
	// 120 s and 10 s.
	MemberExpiry, ScanInterval time.Duration
	// NoticeGap is the shortest time between two rebalance notices of one group. Default 200 ms.
	NoticeGap time.Duration

	// Registrars are the name servers that are told of the broker and its topics: on every change, and all of it every
	// RegisterInterval. Default: none, and 30 s.
	Registrars       []Registrar
	RegisterInterval time.Duration

	// CheckInterval is from one check of an undecided transaction to the next, MaxChecks how often its producers are asked before it is moved aside.
	// Default 30 s and 15. The first check comes 6 s after the half message, or when the message says.
	CheckInterval time.Duration
	MaxChecks     int
	// RejectTransactions refuses half messages.
	RejectTransactions bool
	checkTick          time.Duration // how often it is looked what is to be checked. Default 1 s; other values are for tests

	// Log is where the broker writes; default slog.Default().
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&c.Name, "broker-a")
	def(&c.Cluster, "DefaultCluster")
	def(&c.Region, "DefaultRegion")
	number(&c.MaxBodyBytes, store.MaxBodyBytes)
	number(&c.MaxTopics, 100_000)
	number(&c.MaxGroups, 100_000)
	number(&c.DefaultTopicQueues, 8)
	number(&c.MaxPullMessages, 32)
	number(&c.MaxPullBytes, 256<<10)
	number(&c.MaxScanEntries, 800)
	number(&c.MaxHold, 60*time.Second)
	number(&c.MaxHeld, 100_000)
	number(&c.MemberExpiry, 120*time.Second)
	number(&c.ScanInterval, 10*time.Second)
	number(&c.NoticeGap, 200*time.Millisecond)
	number(&c.RegisterInterval, 30*time.Second)
	number(&c.CheckInterval, 30*time.Second)
	number(&c.MaxChecks, 15)
	number(&c.checkTick, time.Second)
	if c.ReplayBytes == 0 {
		c.ReplayBytes = physicalMemory() / 100 * 40
	}
	if c.HAAddr == "" {
		c.HAAddr = nextPort(c.AdvertiseAddr)
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

func number[T ~int | ~int32 | ~int64](n *T, v T) {
	if *n == 0 {
		*n = v
	}
}

// ErrConfig is wrapped by what New says about a field of Config.
var ErrConfig = errors.New("broker configuration")

func (c *Config) validate() error {
	bad := func(field string, v any, want string) error {
		return fmt.Errorf("%w: %s is %v, want %s", ErrConfig, field, v, want)
	}
	for _, n := range []struct{ field, v string }{{"Name", c.Name}, {"Cluster", c.Cluster}} {
		// Both are names of topics too.
		if err := meta.CheckTopic(n.v); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrConfig, n.field, err)
		}
	}
	if c.ID != remoting.MasterID {
		return bad("ID", c.ID, "0: there is no replication yet")
	}
	_, port, err := net.SplitHostPort(c.AdvertiseAddr)
	if err != nil || port == "" || port == "0" || strings.Contains(c.AdvertiseAddr, ",") {
		return bad("AdvertiseAddr", fmt.Sprintf("%q", c.AdvertiseAddr), "host:port or :port that clients can reach, without a comma")
	}
	if !c.StoreHost.IsValid() || c.StoreHost.Port() == 0 {
		return bad("StoreHost", c.StoreHost, "the IP address and port that routes advertise")
	}
	if strings.ContainsAny(c.Region, "\x01\x02") {
		return bad("Region", fmt.Sprintf("%q", c.Region), "text without the bytes 0x01 and 0x02")
	}
	for _, n := range []struct {
		field   string
		v, l, h int64
	}{
		{"MaxBodyBytes", int64(c.MaxBodyBytes), 1, store.MaxBodyBytes}, {"MaxTopics", int64(c.MaxTopics), 1, 10_000_000}, {"MaxGroups", int64(c.MaxGroups), 1, 10_000_000},
		{"DefaultTopicQueues", int64(c.DefaultTopicQueues), 1, meta.MaxQueues}, {"MaxPullMessages", int64(c.MaxPullMessages), 1, 4096},
		{"MaxPullBytes", int64(c.MaxPullBytes), 1, 8 << 20}, {"MaxScanEntries", int64(c.MaxScanEntries), 1, 1 << 20}, {"MaxHeld", int64(c.MaxHeld), 1, 10_000_000},
		{"ReplayBytes", c.ReplayBytes, 1, 1 << 62}, {"MaxChecks", int64(c.MaxChecks), 1, 10_000},
	} {
		if n.v < n.l || n.v > n.h {
			return bad(n.field, n.v, fmt.Sprintf("%d to %d", n.l, n.h))
		}
	}
	for _, d := range []struct {
		field   string
		v, l, h time.Duration
	}{
		{"MaxHold", c.MaxHold, time.Millisecond, time.Hour}, {"MemberExpiry", c.MemberExpiry, time.Second, 24 * time.Hour},
		{"ScanInterval", c.ScanInterval, 10 * time.Millisecond, time.Hour}, {"NoticeGap", c.NoticeGap, time.Millisecond, time.Minute},
		{"RegisterInterval", c.RegisterInterval, time.Second, time.Hour}, {"CheckInterval", c.CheckInterval, time.Millisecond, 24 * time.Hour},
	} {
		if d.v < d.l || d.v > d.h {
			return bad(d.field, d.v, fmt.Sprintf("%v to %v", d.l, d.h))
		}
	}
	if c.MaxConns < 0 {
		return bad("MaxConns", c.MaxConns, "0 for the default, or more")
	}
	if c.IdleTimeout != 0 && c.IdleTimeout < time.Second {
		return bad("IdleTimeout", c.IdleTimeout, "0 for the default, or at least 1s")
	}
	return nil
}

// physicalMemory is the machine's memory in bytes; 1 GiB when the system does not say.
func physicalMemory() int64 {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil || si.Totalram == 0 {
		return 1 << 30
	}
	return int64(si.Totalram) * int64(si.Unit)
}

// nextPort is addr with its port + 1, addr itself when it has none.
func nextPort(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	n, err := net.LookupPort("tcp", port)
	if err != nil || n >= 65535 {
		return addr
	}
	return net.JoinHostPort(host, fmt.Sprint(n+1))
}
