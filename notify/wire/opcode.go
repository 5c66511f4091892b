package wire

import "strconv"

// Opcode names a command. A response carries the opcode of its request.
type Opcode uint8

// The opcodes of NOTIFY_V1. C>S and S>C say who sends the request.
const (
	OpSend              Opcode = 0x00 // C>S MessageHeader, body: the message's. Answer: MessageAck
	OpDeliver           Opcode = 0x01 // S>C MessageHeader, body: the message's. Answer: MessageAck
	OpMetadata          Opcode = 0x02 // C>S body: Metadata. Answer: none, negotiated: MetadataAnswer
	OpCheck             Opcode = 0x03 // S>C Check, body: the message's. Answer: CheckAck
	OpCommitRollback    Opcode = 0x04 // C>S CommitRollback
	OpCloseSubscription Opcode = 0x05 // C>S Subscription
	OpOpenSubscription  Opcode = 0x06 // C>S Subscription
	OpSendList          Opcode = 0x07 // C>S body: MessageList. Answer: MessageListAck
	OpHeartbeat         Opcode = 0x10 // both ways, nothing inside
	OpSubscribe         Opcode = 0x11 // C>S Subscription
	OpDummy             Opcode = 0x13 // both ways, header: any text, echoed
)

// The opcodes that are legal only after the feature named behind them was negotiated.
const (
	OpUnsubscribe  Opcode = 0x20 // C>S Subscription. FeatureUnsubscribe
	OpDeliverBatch Opcode = 0x21 // S>C DeliverBatch; never answered. FeatureBatch
	OpAckBatch     Opcode = 0x22 // C>S runs of delivery tags; answered only when refused. FeatureBatch
	OpCredit       Opcode = 0x23 // C>S Credit. FeatureCredit
)

var opcodeNames = map[Opcode]string{
	OpSend: "SEND_MESSAGE", OpDeliver: "DELIVER_MESSAGE", OpMetadata: "SEND_METADATA", OpCheck: "CHECK_MESSAGE",
	OpCommitRollback: "COMMIT_ROLLBACK_MESSAGE", OpCloseSubscription: "CLOSE_SUBSCRIPTION", OpOpenSubscription: "OPEN_SUBSCRIPTION",
	OpSendList: "SEND_MESSAGE_LIST", OpHeartbeat: "HEARTBEAT", OpSubscribe: "SEND_SUBSCRIPTION", OpDummy: "DUMMY",
	OpUnsubscribe: "UNSUBSCRIBE", OpDeliverBatch: "DELIVER_BATCH", OpAckBatch: "ACK_BATCH", OpCredit: "CREDIT",
}

// String is the protocol's name, or 0x and the number.
func (o Opcode) String() string {
	if s, ok := opcodeNames[o]; ok {
		return s
	}
	return "0x" + strconv.FormatUint(uint64(o), 16)
}

// Status is the verdict in a response.
type Status uint16

const (
	NoError        Status = 0 // done, stored, handled
	StatusError    Status = 1 // refused by the peer: asking again gives the same answer
	StatusFailed   Status = 2 // EXCEPTION: the peer failed
	StatusUnknown  Status = 3 // the peer has no listener for this
	StatusBusy     Status = 4 // THREADPOOL_BUSY: the peer is overloaded
	StatusComm     Status = 5 // ERROR_COMM: a frame could not be read
	StatusNoOpcode Status = 6 // NO_PROCESSOR: the peer does not serve the opcode
	StatusTimeout  Status = 7 // no answer in time; the work may have been done
)

var statusNames = [...]string{"NO_ERROR", "ERROR", "EXCEPTION", "UNKNOWN", "THREADPOOL_BUSY", "ERROR_COMM", "NO_PROCESSOR", "TIMEOUT"}

// String is the protocol's name, or the number.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "status " + strconv.Itoa(int(s))
}
