package admin

import "time"

// Status is what a broker says about itself.
type Status struct {
	Version       string            `json:"version"`       // Version of the program
	GoVersion     string            `json:"goVersion"`     // Version of Go that it was built with
	PID           int               `json:"pid"`           // Process id
	Started       time.Time         `json:"started"`       // When the process began to serve
	UptimeSeconds int64             `json:"uptimeSeconds"` // Seconds since then
	Ready         bool              `json:"ready"`         // Whether everything serves, as /readyz has it
	Profile       string            `json:"profile"`       // Set of defaults: dev or production
	Security      string            `json:"security"`      // Who may do what. none: everyone who reaches a port may do everything
	Cluster       string            `json:"cluster"`       // Cluster that the broker registers under
	Broker        string            `json:"broker"`        // Name of the broker
	Advertised    string            `json:"advertised"`    // host:port that clients are told to connect to; the host is * when each client is told the address through which it came
	Data          string            `json:"data"`          // Directory of the data, as an absolute path
	Listeners     map[string]string `json:"listeners"`     // host:port of every open listener, by name
	Store         StoreStatus       `json:"store"`         // The log
	Counts        Counts            `json:"counts"`        // How many there are of what
	Memory        Memory            `json:"memory"`        // Memory of the process
}

// StoreStatus is where the log stands. Positions are bytes from the start of the log.
type StoreStatus struct {
	MinPosition        int64  `json:"minPosition"`        // First byte that is still kept
	MaxPosition        int64  `json:"maxPosition"`        // Next byte to be written
	SyncedPosition     int64  `json:"syncedPosition"`     // First byte that may not be on disk yet
	DispatchedPosition int64  `json:"dispatchedPosition"` // First byte that the views may not cover yet
	Problem            string `json:"problem,omitempty"`  // Why no message is taken: the disk failed or is full. Empty while all is well
	Flush              string `json:"flush"`              // When a send is acknowledged, for topics that do not say: async or sync
}

// Counts are numbers of things.
type Counts struct {
	Topics            int `json:"topics"`            // Topics that users made; system topics are left out
	PullGroups        int `json:"pullGroups"`        // Consumer groups that pull
	PushGroups        int `json:"pushGroups"`        // Groups that are pushed to
	BrokerConnections int `json:"brokerConnections"` // Open connections on the broker's ports
	NotifyConnections int `json:"notifyConnections"` // Open connections on the Notify port
}

// Memory is what the process uses.
type Memory struct {
	AnonymousBytes int64 `json:"anonymousBytes"` // Resident memory that belongs to the process alone; the page cache is not in it
	HeapBytes      int64 `json:"heapBytes"`      // Go heap in use
	LimitBytes     int64 `json:"limitBytes"`     // Size at which the garbage collector works harder
}

// Topic is one topic.
type Topic struct {
	Name        string `json:"name"`        // Name
	ReadQueues  int32  `json:"readQueues"`  // Queues that consumers read
	WriteQueues int32  `json:"writeQueues"` // Queues that producers write
	Perm        string `json:"perm"`        // r, w or rw; - for neither
	Durability  string `json:"durability"`  // When a send is acknowledged: memory, async or sync
	System      bool   `json:"system"`      // Whether the system made it for itself
	Messages    int64  `json:"messages"`    // Messages that can be read, over all queues

	Idempotent    bool              `json:"idempotent"`              // Whether a message of a RocketMQ producer that comes again under its unique id is stored once. Those on the Notify wire always are
	UntilConsumed string            `json:"untilConsumed,omitempty"` // How long messages are kept for push groups that have not read them, beyond the age limit, as in 36h. Empty: no longer than others
	Order         bool              `json:"order"`                   // RocketMQ's order flag: clients get the queues of the topic in an order of their own
	Attributes    map[string]string `json:"attributes,omitempty"`    // Other attributes, which RocketMQ's tools set and show
}

// TopicDetail is one topic with its queues.
type TopicDetail struct {
	Topic
	Queues []Queue `json:"queues"` // Queues that ever had a message
}

// Queue is one queue of a topic.
type Queue struct {
	ID        int32 `json:"id"`        // Number of the queue
	MinOffset int64 `json:"minOffset"` // First offset that can be read
	MaxOffset int64 `json:"maxOffset"` // Next offset to be given
}

// topicPage is a part of the list of topics.
type topicPage struct {
	Topics []Topic `json:"topics"`         // In order of their names
	Next   string  `json:"next,omitempty"` // Value of after for the next page; absent on the last one
}

// NewTopic asks for a topic.
type NewTopic struct {
	Name       string `json:"name"`                 // 1 to 127 letters, digits, -, _, % and |
	Queues     int32  `json:"queues,omitempty"`     // Read and write queues. Default: broker.default-queues
	Perm       string `json:"perm,omitempty"`       // r, w or rw. Default: rw
	Durability string `json:"durability,omitempty"` // memory, async or sync. Default: store.flush

	Idempotent    bool   `json:"idempotent,omitempty"`    // See Topic
	UntilConsumed string `json:"untilConsumed,omitempty"` // A duration of at most 168h, or true for that. Default: no longer than others
	Order         bool   `json:"order,omitempty"`         // See Topic
}

// TopicChange says what is to be another way. What is nil stays as it is.
type TopicChange struct {
	ReadQueues    *int32             `json:"readQueues,omitempty"`    // Queues that consumers read, 1 to 16384. Messages in queues beyond them are not read until it grows again
	WriteQueues   *int32             `json:"writeQueues,omitempty"`   // Queues that producers write, 1 to 16384
	Perm          *string            `json:"perm,omitempty"`          // r, w, rw, or - for neither
	Durability    *string            `json:"durability,omitempty"`    // memory, async or sync; default for store.flush. Counts for every send from now on
	Idempotent    *bool              `json:"idempotent,omitempty"`    // See Topic
	UntilConsumed *string            `json:"untilConsumed,omitempty"` // A duration of at most 168h, true for that, or off
	Order         *bool              `json:"order,omitempty"`         // See Topic
	Attributes    map[string]*string `json:"attributes,omitempty"`    // Other attributes to be set; nil takes one away
}

// TopicChanged is a topic before and after a change.
type TopicChanged struct {
	Before Topic `json:"before"` // As it was
	After  Topic `json:"after"`  // As it is now
}

// Retention says when files of the log go, and how that stands.
type Retention struct {
	AgeSeconds        int64     `json:"ageSeconds"`        // How long messages are kept: store.retention
	ViewWindowSeconds int64     `json:"viewWindowSeconds"` // How much later a file goes: store.view-window
	DeleteHours       []int     `json:"deleteHours"`       // Hours of the day, local time, in which age deletes: store.delete-hours. Empty: at any hour
	DiskUsedPercent   int64     `json:"diskUsedPercent"`   // Share of the disk that is used, at the last look; 0 before the first
	MaxUsedPercent    int64     `json:"maxUsedPercent"`    // Above it age deletes at any hour: store.disk-max-used
	ForcedPercent     int64     `json:"forcedPercent"`     // Above it the oldest files go whatever their age: store.disk-forced
	RefusePercent     int64     `json:"refusePercent"`     // Above it messages are refused: store.disk-refuse
	MinPosition       int64     `json:"minPosition"`       // First byte of the log that is still kept
	Files             int       `json:"files"`             // Files of the log
	OldestFileUntil   time.Time `json:"oldestFileUntil"`   // When the newest message of the oldest file was stored. 1970 while there is one file only, which never goes
	Problem           string    `json:"problem,omitempty"` // Why no message is taken: the disk failed or is full. Empty while all is well
	DeletedFiles      int64     `json:"deletedFiles"`      // Files that went since the start
	MovedMessages     int64     `json:"movedMessages"`     // Messages stored once more because they were still owed, since the start
	LostMessages      int64     `json:"lostMessages"`      // Of those, messages that could not be read
	ExpiredMessages   int64     `json:"expiredMessages"`   // Messages deleted before a group had read them, counted for each group, since the start
}

// CleanResult is what a look has deleted.
type CleanResult struct {
	DeletedFiles int       `json:"deletedFiles"` // Files of the log that went
	Retention    Retention `json:"retention"`    // How retention stands behind it
}

// Group is one consumer group, on either front end.
type Group struct {
	Name       string       `json:"name"`               // Name
	Mode       string       `json:"mode"`               // pull or push
	Lag        int64        `json:"lag"`                // Messages not yet consumed, over all topics. For a push group, what its cursors and retries have yet to bring, or what waits and is unanswered now when that is more
	Retries    int          `json:"retries"`            // Push groups: messages that wait for another attempt
	Unanswered int          `json:"unanswered"`         // Push groups: messages that wait for an answer
	Topics     []GroupTopic `json:"topics"`             // What it consumes, in order of the topics' names
	Members    []Member     `json:"members"`            // Connected clients
	Conflict   bool         `json:"conflict,omitempty"` // Pull groups: whether members subscribe differently. Each overwrites what the others want, and messages are passed over that some of them are for
}

// GroupTopic is a group's place in one topic.
type GroupTopic struct {
	Topic    string `json:"topic"`              // Name of the topic
	Lag      int64  `json:"lag"`                // Messages not yet consumed
	Attached *bool  `json:"attached,omitempty"` // Push groups: whether the group keeps up with the end of the topic
}

// Member is one connected client of a group.
type Member struct {
	ID       string `json:"id"`                     // Id that the client chose; its address on the Notify wire, which has no ids
	Address  string `json:"address"`                // Where it connects from
	Language string `json:"language,omitempty"`     // What it says it is written in
	Version  string `json:"version,omitempty"`      // Version that it states
	Subs     string `json:"subscription,omitempty"` // What it subscribes, in a pull group; of a long one the first part
}

// Expiry is a range of messages that were deleted before a group had read them.
type Expiry struct {
	Group  string    `json:"group"`  // Name of the group
	Topic  string    `json:"topic"`  // Name of the topic
	Queue  int32     `json:"queue"`  // Number of the queue
	First  int64     `json:"first"`  // Queue offset of the first message
	Last   int64     `json:"last"`   // Queue offset of the last one; the group goes on behind it
	Count  int64     `json:"count"`  // Messages between them, before any filter of the group
	Reason string    `json:"reason"` // age: older than the age limit. disk: the disk was above the level of forced cleaning. body: what these messages were stored in has gone before them, readers step over them; count says how many between first and last
	Face   string    `json:"face"`   // push or pull
	Time   time.Time `json:"time"`   // When they were deleted
}

// Transaction is a half message without an outcome.
type Transaction struct {
	Address int64     `json:"address"` // where its half message is in the log: the name of the transaction
	Topic   string    `json:"topic"`   // topic that the message is for
	Queue   int32     `json:"queue"`   // queue that it is for
	Group   string    `json:"group"`   // producer group whose members are asked
	ID      string    `json:"id"`      // unique id of the message
	Keys    string    `json:"keys"`    // keys of the message
	Bytes   int       `json:"bytes"`   // bytes of its body
	Stored  time.Time `json:"stored"`  // when the half message was stored
	Checks  int32     `json:"checks"`  // how often a producer was asked
	Aside   bool      `json:"aside"`   // whether it was moved aside: nobody is asked any more
	Due     time.Time `json:"due"`     // when a producer is asked next; of one that was moved aside, when that was due
	Problem string    `json:"problem"` // why the half message cannot be read; empty when it can
}

// Transactions are some of those that are not decided.
type Transactions struct {
	Transactions []Transaction `json:"transactions"` // those due first come first
	Total        int           `json:"total"`        // how many there are of the kind that was asked for
}

// transactionEnd says how a transaction is to end.
type transactionEnd struct {
	Outcome string `json:"outcome"`
}

// TransactionEnded is the outcome of a transaction.
type TransactionEnded struct {
	Address int64  `json:"address"` // the name of the transaction
	Outcome string `json:"outcome"` // commit or rollback
}

// expiries are the newest of them.
type expiries struct {
	Expiries []Expiry `json:"expiries"` // Oldest first
}

// groupPage is a part of the list of groups.
type groupPage struct {
	Groups []Group `json:"groups"`         // In order of their names
	Next   string  `json:"next,omitempty"` // Value of after for the next page; absent on the last one
}
