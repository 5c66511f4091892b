package state

// OpKind says what an operate-queue entry does to the state. The numbers are on disk and never change meaning.
//
// A share is what one group is owed of one message: in the window when a data-queue entry of an attached group holds it,
// in a retry line when an attempt has failed or the group was detached. No operation touches the shares of groups it does
// not name, but OpDelete.
type OpKind uint8

const (
	OpDelete OpKind = 1 + iota // window shares of Topic with addresses in [First, Last] are done, for all groups; retries stay
	OpUpdate                   // the share that each group in Failed has of the message at First becomes, or stays, one retry with that attempt and due time; a message read through a cursor gets its retry this way
	OpRetire                   // Last is 0: the share of Group at First is done, in the window or in its retry line. Last >= First: its window shares of Topic in [First, Last] are done; retries stay
	OpBind                     // Group has Binding on Topic from this record's address on
	OpUnbind                   // Group has lost Binding on Topic from this record's address on; what it is owed by then it stays owed
	OpAttach                   // Group is owed the messages of Topic from this record's address on by the data queue
	OpDetach                   // Group is owed the messages of Topic from this record's address on by its cursor; its window shares become retries, no attempt counted, due at once
	OpCursor                   // Group has taken every message of Topic below First through its cursor

	OpPublish  // what waits at First is shown as View says and waits no longer; see ViewKind for what that is
	OpRollback // undecided halves of Topic with addresses in [First, Last] are rolled back
	OpCheck    // the half of Topic at First has been asked about Attempt times and is due for the next check at Due
	OpCancel   // delayed messages of Topic with addresses in [First, Last] are never published
	OpReturn   // pull group Group has sent the message of Topic at First back: it is published to its retry topic at Due, with Attempt attempts; its body is at Position
	OpDefer    // the half of Topic at First is committed, and published at Due
	OpAdopt    // all halves and delays that the log had so far are void: another program wrote them
	OpHold     // the record at Position, Size bytes, waits under the address First for Topic until Due; Level is a HoldKind
	OpPopped   // another program gave the message of Topic at First to pull group Group and got no answer: it is published to the group's retry topic for Topic at Due, with Attempt attempts; its body is at Position, Level is for how many milliseconds before Due it was given

	lastOp = OpPopped

	OpRelocate OpKind = 32 // the record of the message of Topic at First is at position Last now and has Size bytes, wherever that message is owed; First stays its address
)

// ViewKind is why a message is shown a second time, or for the first time later than it was stored.
type ViewKind uint8

const (
	ViewCommit ViewKind = 1 + iota // the half at First is committed
	ViewDelay                      // the delayed message at First is due; it was stored with a level
	ViewTimer                      // the same, stored with a time
	ViewRetry                      // what Group has sent back is due, in %RETRY%Group
	ViewDead                       // Group does not try the message at First any more: a dead letter in %DLQ%Group
	ViewAside                      // the half at First has been asked about in vain; it stays undecided
	ViewRevive                     // what Group was given by a pop and did not acknowledge is due, in the group's retry topic for Topic

	lastView = ViewRevive
)

// View is where and how a published message is shown.
type View struct {
	Kind      ViewKind
	Topic     string
	Queue     int32
	Offset    int64 // queue offset; the log sets it
	Back      int32 // the view's address minus that of its record; set when it is written
	Position  int64 // of the body
	Size      int32
	TagsCode  int32
	Reconsume int32 // RECONSUMETIMES
	Level     int32 // delay level of a ViewRetry
	PopTime   int64 // of a ViewRevive: when Group was given it, milliseconds since 1970
}

// HoldKind says what OpHold holds.
type HoldKind int32

const (
	HoldHalf  HoldKind = 1 + iota // a half; Due is its next check, Attempt the checks made
	HoldDelay                     // stored with a level
	HoldTimer                     // stored with a time
)

// BindingKind is the form of a subscription.
type BindingKind uint8

const (
	BindDirect  BindingKind = 1 + iota // Expr is the exact message type
	BindPattern                        // reserved for a later version
	BindHeader                         // reserved for a later version
	BindFanout                         // every message of the topic; Expr is empty
)

// Binding is one subscription of a group to a topic. Two bindings with equal Kind and Expr are the same one (spec: rulings A02).
type Binding struct {
	Kind      BindingKind
	Expr      string
	WaterMark int32 // most pushed and unacknowledged messages; -1 is the server's default
	Volatile  bool  // not persistent: the group is skipped while no machine is connected
}

// Failed is one target that has to be tried again.
type Failed struct {
	Group   string
	Attempt int32 // attempts made so far
	Due     int64 // milliseconds since 1970; not before this time
}

// Op is one entry of an operate-queue record. Fields that the kind does not name must be zero.
type Op struct {
	Kind        OpKind
	Topic       string
	Group       string
	First, Last int64 // addresses; Last of OpRelocate is a position
	Size        int32 // of the record, in bytes
	Binding     Binding
	Failed      []Failed

	// Of what waits.
	Position int64
	Due      int64 // milliseconds since 1970
	Attempt  int32
	Level    int32 // delay level, HoldKind, or milliseconds
	View     *View
}

// Owed is a message that attached groups are owed: a data-queue entry as the push front end sees it.
type Owed struct {
	Topic    string
	Queue    int32
	Address  int64
	Position int64
	Size     int32
	Time     int64    // store time, milliseconds since 1970
	TagsCode int64    // as in the queue entry
	Targets  []string // group names; messages share the slice, so never change it
}

// Retry is one target that waits for another attempt.
type Retry struct {
	Topic    string
	Group    string
	Address  int64
	Position int64
	Size     int32 // 0 when it failed while it was read through a cursor; Position is Address then
	Attempt  int32 // attempts made so far
	Due      int64 // milliseconds since 1970
}

// Exchange computes which groups a message is owed to. The push front end implements it; the store calls it from one
// goroutine, in log order, while it replays and while it runs. It must be a pure function of the calls made to it:
// no clock, no connections.
type Exchange interface {
	// Bind and Unbind apply a binding change made by the record at address at.
	Bind(at int64, topic, group string, b Binding)
	Unbind(at int64, topic, group string, b Binding)
	// Interested says whether any group has a binding on topic; the store asks it before it parses properties.
	Interested(topic string) bool
	// Targets appends to dst the groups that a message of this topic and tag is owed to, each once, whatever its attach state.
	// properties is RocketMQ's encoded text, valid during the call.
	Targets(dst []string, at int64, topic string, properties []byte) []string
}

// GroupPosition is where a push group stands on a topic.
type GroupPosition struct {
	Attached bool
	Attach   int64 // address of the attach record, when Attached
	Cursor   int64 // messages below this address have been taken or became retries; those from here to Attach (detached: to the tail) are owed by the cursor

	// Messages in [SkipFrom, SkipTo) are not the cursor's: the group was attached there before its cursor had come so far.
	// Equal when there is nothing to skip.
	SkipFrom, SkipTo int64
}
