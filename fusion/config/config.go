// Package config is the configuration of the FusionMQ process: what can be set, where a setting came from, and what is
// wrong with it.
//
// Everything that can be set is a row of one table, [Keys]. From it come the YAML file's keys, the environment
// variables, the flags, the checks, `fusionmq config show`, and docs/configuration.md, so none of them can disagree.
// [Load] reads the sources in order of strength: flag, environment, file, default. It reports every mistake that it
// finds, not only the first, and an unknown key with the known one that is nearest.
//
// The package decides nothing: it opens no port and no data, and only [Load] reads a file.
package config

import "time"

// Profile chooses a set of defaults.
type Profile string

const (
	Dev        Profile = "dev"        // everything opens, topics appear on first use
	Production Profile = "production" // nothing appears by itself; refuses to run unprotected without saying so
)

// Config is what the process runs with. Each field belongs to one key, which documents it; see [Keys]. A Config from
// [Load] is complete and valid. It is a plain value: copy it to change it.
type Config struct {
	Data          string
	Profile       Profile
	Insecure      bool
	AdvertiseHost string

	Nameserver Nameserver
	Broker     Broker
	Fast       Fast
	Notify     Notify
	HTTP       HTTP
	Store      Store
	Log        Log
	Metrics    Metrics
	Pyroscope  Pyroscope
	Memory     Memory
	Shutdown   Shutdown
}

// Nameserver configures the embedded name server.
type Nameserver struct {
	Addr string // host:port, "off" closes it
}

// Broker configures the pull front end.
type Broker struct {
	Addr             string
	Cluster          string
	Name             string
	Nameservers      []string // host:port of other name servers
	RegisterInterval time.Duration
	AutoCreateTopics bool
	AutoCreateGroups bool
	PropertyFilter   bool
	DefaultQueues    int64
	CheckInterval    time.Duration // from one check of an undecided transaction to the next
	MaxChecks        int64
	Transactions     bool
	MaxMessageSize   int64 // bytes
	MaxConnections   int64
	IdleTimeout      time.Duration
}

// Fast configures the second broker port that old clients expect.
type Fast struct {
	Addr string // "auto" is two below the broker's port
}

// Notify configures the push front end.
type Notify struct {
	Addr           string
	AckTimeout     time.Duration
	MaxConnections int64
}

// HTTP configures the administration port.
type HTTP struct {
	Addr string
}

// Store configures the embedded store.
type Store struct {
	SegmentSize     int64  // bytes; 0 keeps what there is
	Flush           string // "async" or "sync"
	FlushInterval   time.Duration
	PersistInterval time.Duration
	CheckpointSize  int64 // bytes
	OnceWindow      time.Duration
	OnceMemory      int64 // bytes

	Retention     time.Duration
	ViewWindow    time.Duration // 0: a quarter of Retention
	DelayLevels   []string      // durations of levels 1, 2, ...; empty keeps what the directory has
	DeleteHours   []string      // "0" to "23"
	CleanInterval time.Duration
	DeleteBatch   int64 // segments
	DiskMaxUsed   int64 // percent, as the two below
	DiskForced    int64
	DiskRefuse    int64
}

// Log configures the process log.
type Log struct {
	Level  string // "debug", "info", "warn" or "error"
	Format string // "text" or "json"
}

// Metrics configures the metrics page.
type Metrics struct {
	MaxSeries int64
}

// Pyroscope configures continuous profiling.
type Pyroscope struct {
	URL string // empty: no profiling
	App string
}

// Memory configures the Go runtime.
type Memory struct {
	Limit int64 // bytes; 0 follows the machine
}

// Shutdown configures the end of the process.
type Shutdown struct {
	Timeout time.Duration
}

// Listener addresses with a meaning of their own.
const (
	Off  = "off"  // the listener stays closed
	Auto = "auto" // fast.addr: two below the broker's port
)
