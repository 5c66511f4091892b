package config

import (
	"os"
	"strings"
	"time"
)

// sections gives the order and the purpose of the parts of the file.
var sections = []struct{ name, doc string }{
	{"", "The process as a whole."},
	{"nameserver", "The embedded RocketMQ name server: clients ask it which broker has a topic."},
	{"broker", "The RocketMQ broker protocol: producers, and consumers that pull."},
	{"fast", "The second broker port that clients up to RocketMQ 4.4 use (the \"VIP channel\")."},
	{"notify", "The Notify wire: producers, and subscribers that are pushed to."},
	{"http", "Administration over HTTP: `/api/v1`, `/metrics`, `/healthz`, `/readyz`."},
	{"store", "The embedded store."},
	{"log", "The log of the process, on standard error, one line an event."},
	{"metrics", "The page `/metrics`."},
	{"pyroscope", "Continuous profiling with Grafana Pyroscope."},
	{"memory", "The Go runtime."},
	{"shutdown", "The end of the process."},
}

// keys binds the table to c. The order is the order of the documentation.
func keys(c *Config) []Key {
	return []Key{
		{Name: "data", Default: "./data", HasFlag: true,
			Doc:   "Directory of everything that is kept. Made when missing; one process at a time may use it.",
			value: textValue{&c.Data, notEmpty, "a path"}},
		{Name: "profile", Default: string(Dev), HasFlag: true,
			Doc:   "Set of defaults. `production` changes the defaults marked below and refuses to start without access control, which this version does not have yet: state `insecure: true` to run it in a network that you trust.",
			value: enumValue[Profile]{&c.Profile, []Profile{Dev, Production}}},
		{Name: "insecure", Default: "false", HasFlag: true,
			Doc:   "Accept that everyone who reaches a port may do everything. Only `profile: production` asks for it.",
			value: boolValue{&c.Insecure}},
		{Name: "advertise-host", Default: "", HasFlag: true, Shown: "the address through which a client reached the name server",
			Doc:   "Host name or address that clients are told to connect to. Set it when they reach this machine by another address than the process sees: containers, NAT, several networks.",
			value: textValue{&c.AdvertiseHost, hostOnly, "a host name or an address, without a port"}},

		{Name: "nameserver.addr", Default: ":9876", HasFlag: true,
			Doc:   "Where the name server listens.",
			value: textValue{&c.Nameserver.Addr, listenAddr(Off), addrForm}},

		{Name: "broker.addr", Default: ":10911", HasFlag: true,
			Doc:   "Where the broker listens.",
			value: textValue{&c.Broker.Addr, listenAddr(Off), addrForm}},
		{Name: "broker.cluster", Default: "DefaultCluster",
			Doc:   "Cluster that the broker registers under. Also the name of a system topic.",
			value: textValue{&c.Broker.Cluster, nodeName, nameForm}},
		{Name: "broker.name", Default: machineName(), Shown: "the machine's host name",
			Doc:   "Name of the broker. Must differ between the brokers of a cluster and stay the same for the life of the data. Also the name of a system topic.",
			value: textValue{&c.Broker.Name, nodeName, nameForm}},
		{Name: "broker.nameservers", Default: "",
			Doc:   "Other name servers to register with, beside the embedded one.",
			value: listValue{p: &c.Broker.Nameservers, check: dialAddr, desc: "a list of host:port"}},
		{Name: "broker.register-interval", Default: "30s",
			Doc:   "How often the broker registers again. A name server forgets a broker that was silent for 120 s.",
			value: durationValue{&c.Broker.RegisterInterval, 10 * time.Second, 60 * time.Second}},
		{Name: "broker.auto-create-topics", Default: "true", Production: "false", HasFlag: true,
			Doc:   "Create a topic when the first message for it arrives.",
			value: boolValue{&c.Broker.AutoCreateTopics}},
		{Name: "broker.auto-create-groups", Default: "true", Production: "false", HasFlag: true,
			Doc:   "Create a consumer group when it appears for the first time.",
			value: boolValue{&c.Broker.AutoCreateGroups}},
		{Name: "broker.property-filter", Default: "true",
			Doc:   "Whether consumers may subscribe by SQL92 expressions over the properties of messages.",
			value: boolValue{&c.Broker.PropertyFilter}},
		{Name: "broker.default-queues", Default: "8", Unit: "queues",
			Doc:   "Most queues of a topic that is created on first use; a producer may ask for fewer.",
			value: intValue{&c.Broker.DefaultQueues, 1, 1024}},
		{Name: "broker.max-message-size", Default: "4MiB",
			Doc:   "Largest body of a message, on both front ends. No more than half of a segment: of `store.segment-size` where that is set, or else of the segments that the directory has, and then the log and the start block tell the smaller size.",
			value: sizeValue{p: &c.Broker.MaxMessageSize, min: 1 << 10, max: 4 << 20}},
		{Name: "broker.transactions", Default: "true",
			Doc:   "Take half messages. `false` refuses them with code 16; what is undecided can still be ended.",
			value: boolValue{&c.Broker.Transactions}},
		{Name: "broker.transaction-check-interval", Default: "30s",
			Doc:   "How long after one question to the producers of an undecided transaction the next follows. The first comes 6 s after the half message, or after as many seconds as its property CHECK_IMMUNITY_TIME_IN_SECONDS says.",
			value: durationValue{&c.Broker.CheckInterval, time.Second, 24 * time.Hour}},
		{Name: "broker.transaction-check-max", Default: "15", Unit: "questions",
			Doc:   "How often the producers of an undecided transaction are asked before it is moved aside, to TRANS_CHECK_MAX_TIME_TOPIC, where it can be read and still be committed or rolled back.",
			value: intValue{&c.Broker.MaxChecks, 1, 10_000}},
		{Name: "broker.max-connections", Default: "18000", Unit: "connections",
			Doc:   "Most connections on the broker port, and on the fast one, at a time. Further ones are closed at once.",
			value: intValue{&c.Broker.MaxConnections, 1, 1_000_000}},
		{Name: "broker.idle-timeout", Default: "2m",
			Doc:   "Close a connection that was silent for this long.",
			value: durationValue{&c.Broker.IdleTimeout, 30 * time.Second, time.Hour}},

		{Name: "fast.addr", Default: Auto, HasFlag: true,
			Doc:   "Where the second port listens. `auto` is the broker's host and port - 2, and closed when the broker's port is 0.",
			value: textValue{&c.Fast.Addr, listenAddr(Auto, Off), "`auto`, " + addrForm}},

		{Name: "notify.addr", Default: ":9877", HasFlag: true,
			Doc:   "Where the Notify wire listens.",
			value: textValue{&c.Notify.Addr, listenAddr(Off), addrForm}},
		{Name: "notify.ack-timeout", Default: "5s",
			Doc:   "How long a subscriber has to acknowledge a push before the message is tried again.",
			value: durationValue{&c.Notify.AckTimeout, 100 * time.Millisecond, 10 * time.Minute}},
		{Name: "notify.max-connections", Default: "40000", Unit: "connections",
			Doc:   "Most connections on the Notify port at a time. Further ones are closed at once.",
			value: intValue{&c.Notify.MaxConnections, 1, 1_000_000}},

		{Name: "http.addr", Default: "127.0.0.1:8080", HasFlag: true,
			Doc:   "Where HTTP listens. It has no access control yet: open it to other machines only in a network that you trust.",
			value: textValue{&c.HTTP.Addr, listenAddr(Off), addrForm}},

		{Name: "store.segment-size", Default: "0", Shown: "what the directory was made with; `1GiB` for a new one",
			Doc:   "Size of one file of the log. Fixed when the directory is made.",
			value: sizeValue{p: &c.Store.SegmentSize, min: 64 << 10, max: 1 << 30, multiple: 4 << 10, zero: "keeps what there is"}},
		{Name: "store.flush", Default: "async", HasFlag: true,
			Doc:   "When a send is acknowledged, for topics that do not say: `async` when the message is in the page cache (survives the end of the process, not of the machine), `sync` when it is on disk.",
			value: enumValue[string]{&c.Store.Flush, []string{"async", "sync"}}},
		{Name: "store.flush-interval", Default: "500ms",
			Doc:   "How often the log is brought to disk in the background: the most that `async` loses when the machine fails.",
			value: durationValue{&c.Store.FlushInterval, 10 * time.Millisecond, time.Minute}},
		{Name: "store.persist-interval", Default: "5s",
			Doc:   "How often changed consumer offsets are written.",
			value: durationValue{&c.Store.PersistInterval, 100 * time.Millisecond, 10 * time.Minute}},
		{Name: "store.checkpoint-size", Default: "256MiB",
			Doc:   "Most log that is read again after an unclean stop.",
			value: sizeValue{p: &c.Store.CheckpointSize, min: 1 << 20, max: 16 << 30}},
		{Name: "store.once-window", Default: "10m",
			Doc:   "How long the id of a message that is stored once, however often it is sent, is remembered at least: every message on the Notify wire, and those of topics with the attribute `fusion.idempotent`. It is remembered for longer while the message is undecided, delayed or owed to a named group, and no longer than the message is kept.",
			value: durationValue{&c.Store.OnceWindow, 10 * time.Minute, 24 * time.Hour}},
		{Name: "store.once-memory", Default: "8MiB",
			Doc:   "Memory that tells new ids from repeated ones, used from the first such message on, and up to a quarter more while much is owed. With more ids in the window than it has room for, 5 million at 8 MiB, sends ask the key index more often.",
			value: sizeValue{p: &c.Store.OnceMemory, min: 64 << 10, max: 1 << 30}},
		{Name: "store.retention", Default: "72h",
			Doc:   "How long messages are kept. Files of the log go as a whole, and `store.view-window` later. What is still owed to a named group stays.",
			value: durationValue{&c.Store.Retention, time.Minute, 1_000_000 * time.Hour}},
		{Name: "store.view-window", Default: "0s", Shown: "a quarter of `store.retention`",
			Doc:   "How long a delayed or transactional message may have waited and still find its body where it was sent; one that is older is stored once more when it is delivered. 0s is the default.",
			value: durationValue{&c.Store.ViewWindow, 0, 1_000_000 * time.Hour}},
		{Name: "store.delay-levels", Default: "", Shown: "what the directory had last; for a new one RocketMQ's 18 levels from `1s` to `2h`",
			Doc:   "Delays of the levels 1, 2, ... that a RocketMQ producer or consumer names. A message keeps the delay that its level has when it is stored.",
			value: listValue{p: &c.Store.DelayLevels, check: delayLevel, desc: "at most 64 times, each from 1ms to 960h", most: 64}},
		{Name: "store.delete-hours", Default: "", Shown: "at any hour",
			Doc:   "Hours of the day, local time, in which files that are too old are deleted.",
			value: listValue{p: &c.Store.DeleteHours, check: hourOfDay, desc: "numbers from 0 to 23"}},
		{Name: "store.clean-interval", Default: "10s",
			Doc:   "How often the store looks at the disk and for files that may go.",
			value: durationValue{&c.Store.CleanInterval, time.Second, time.Hour}},
		{Name: "store.delete-batch", Default: "10", Unit: "files",
			Doc:   "Most files of the log that one look deletes.",
			value: intValue{&c.Store.DeleteBatch, 1, 1000}},
		{Name: "store.disk-max-used", Default: "75", Unit: "percent",
			Doc:   "Share of the disk above which files that are too old are deleted at any hour.",
			value: intValue{&c.Store.DiskMaxUsed, 10, 95}},
		{Name: "store.disk-forced", Default: "85", Unit: "percent",
			Doc:   "Share of the disk above which the oldest files are deleted whatever their age and whoever has not read them; an expiry record names what a group has lost by it.",
			value: intValue{&c.Store.DiskForced, 30, 85}},
		{Name: "store.disk-refuse", Default: "90", Unit: "percent",
			Doc:   "Share of the disk above which messages are refused, until it is at `store.disk-forced` or below. Must be above that.",
			value: intValue{&c.Store.DiskRefuse, 35, 90}},

		{Name: "log.level", Default: "info", HasFlag: true, Live: true,
			Doc:   "Least important events that are logged.",
			value: enumValue[string]{&c.Log.Level, []string{"debug", "info", "warn", "error"}}},
		{Name: "log.format", Default: "text", HasFlag: true,
			Doc:   "Form of a line: `text` is key=value, `json` one object.",
			value: enumValue[string]{&c.Log.Format, []string{"text", "json"}}},

		{Name: "metrics.max-series", Default: "1000", Unit: "series", Live: true,
			Doc:   "Most topic and group series of one metric; the page counts what it leaves out.",
			value: intValue{&c.Metrics.MaxSeries, 0, 100_000}},

		{Name: "pyroscope.url", Default: "",
			Doc:   "Address of a Pyroscope server, such as http://pyroscope:4040. Empty: no profiles are sent.",
			value: textValue{&c.Pyroscope.URL, httpURL, "an http or https address"}},
		{Name: "pyroscope.app", Default: "fusionmq",
			Doc:   "Name under which the profiles appear.",
			value: textValue{&c.Pyroscope.App, notEmpty, "a name"}},

		{Name: "memory.limit", Default: "0", Shown: "three quarters of the memory that the machine or its control group has",
			Doc:   "Size at which the garbage collector works harder to stay below (GOMEMLIMIT, which wins when it is set). It covers what Go allocates, not the page cache.",
			value: sizeValue{p: &c.Memory.Limit, min: 32 << 20, max: 1 << 40, zero: "follows the machine"}},

		{Name: "shutdown.timeout", Default: "8s",
			Doc:   "How long requests in work may take after SIGTERM before their connections are closed. The process ends at most two seconds later.",
			value: durationValue{&c.Shutdown.Timeout, 0, time.Minute}},
	}
}

const (
	addrForm = "host:port, `:port` for all interfaces, port 0 for a free one, or `off`"
	nameForm = "1 to 127 letters, digits, `-`, `_`, `%`, `|`"
)

// machineName is the host name in the alphabet of broker names.
func machineName() string {
	h, err := os.Hostname()
	if err == nil {
		h = strings.ReplaceAll(h, ".", "-")
		if nodeName(h) == nil {
			return h
		}
	}
	return "fusionmq"
}
