package protocol

import "fmt"

// Code is the kind of an error. Codes are append-only.
type Code uint16

// The error codes; the table below says of each what it means for the caller.
const (
	CodeInternal          Code = 1
	CodeBadFrame          Code = 2
	CodeUnsupported       Code = 3
	CodeBadRequest        Code = 4
	CodeNotAuthenticated  Code = 5
	CodeNotAllowed        Code = 6
	CodeTooLarge          Code = 7
	CodeTimeout           Code = 8
	CodeOverloaded        Code = 9
	CodeShuttingDown      Code = 10
	CodeNoSuchTopic       Code = 11
	CodeNoSuchPartition   Code = 12
	CodeNoSuchSub         Code = 13
	CodeNoSuchNamespace   Code = 14
	CodeExists            Code = 15 // with other settings
	CodeBadName           Code = 16
	CodeMoved             Code = 17
	CodeMoving            Code = 18
	CodeUnknownEpoch      Code = 19
	CodeNoLeader          Code = 20
	CodeUnknownOutcome    Code = 21 // stored or not is not known (R5)
	CodeStorageFull       Code = 22
	CodeStorageFailed     Code = 23
	CodeCorruptBatch      Code = 24
	CodeBadSequence       Code = 25
	CodeSequenceOverlap   Code = 26
	CodeProducerFenced    Code = 27
	CodeProducerBusy      Code = 28 // exclusive producer present
	CodeConsumerBusy      Code = 29 // exclusive subscription has a consumer
	CodeConsumerReplaced  Code = 30
	CodeBelowLogStart     Code = 31
	CodeAboveEnd          Code = 32
	CodeDamaged           Code = 33
	CodePending           Code = 34 // the offsets lie on a store that is away (R15)
	CodeBadHandle         Code = 35
	CodeWrongType         Code = 36 // subscription has another type
	CodeLimit             Code = 37
	CodeNotReliable       Code = 38
	CodeStaleGeneration   Code = 39
	CodeLevelUnavailable  Code = 40
	CodeSlowConsumer      Code = 41
	CodeNotReady          Code = 42
	CodeSubscriptionInUse Code = 43
)

// Action is what a client does about an error.
type Action uint8

// The actions.
const (
	GiveUp   Action = iota // tell the application
	Wait                   // try the same again after a pause
	LookUp                 // ask who owns the partition, then try again
	Reopen                 // open the producer or consumer again, then go on
	AskAgain               // outcome unknown: send the same again under the same sequence
)

// String is the name that docs use.
func (a Action) String() string {
	names := [...]string{"give up", "wait", "look up", "reopen", "ask again"}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// Meaning is one row of the error table.
type Meaning struct {
	Name      string
	Text      string // default text
	Retriable bool
	NotStored bool // of a produce: the batch is certainly not stored
	Action    Action
}

// Meaning returns the row of c; an unknown code is one from a newer broker: not retriable.
func (c Code) Meaning() Meaning {
	if int(c) < len(meanings) && meanings[c].Name != "" {
		return meanings[c]
	}
	return Meaning{Name: fmt.Sprintf("CODE_%d", uint16(c)), Text: "unknown error"}
}

// String is the name of the code.
func (c Code) String() string { return c.Meaning().Name }

// Error is the text for a person.
func (e *Error) Error() string {
	if e.Text != "" {
		return e.Text
	}
	return e.Code.Meaning().Text
}

// Is makes errors.Is(err, &Error{Code: c}) compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Errorf makes an Error with a text.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...)}
}

// meanings is indexed by code.
var meanings = [...]Meaning{
	CodeInternal:          {"INTERNAL", "internal error", false, false, GiveUp},
	CodeBadFrame:          {"BAD_FRAME", "malformed frame", false, true, GiveUp},
	CodeUnsupported:       {"UNSUPPORTED", "not supported by this broker", false, true, GiveUp},
	CodeBadRequest:        {"BAD_REQUEST", "malformed request", false, true, GiveUp},
	CodeNotAuthenticated:  {"NOT_AUTHENTICATED", "not authenticated", false, true, GiveUp},
	CodeNotAllowed:        {"NOT_ALLOWED", "not allowed", false, true, GiveUp},
	CodeTooLarge:          {"TOO_LARGE", "too large", false, true, GiveUp},
	CodeTimeout:           {"TIMEOUT", "timed out", true, false, AskAgain},
	CodeOverloaded:        {"OVERLOADED", "broker overloaded", true, true, Wait},
	CodeShuttingDown:      {"SHUTTING_DOWN", "broker is shutting down", true, true, LookUp},
	CodeNoSuchTopic:       {"NO_SUCH_TOPIC", "no such topic", false, true, GiveUp},
	CodeNoSuchPartition:   {"NO_SUCH_PARTITION", "no such partition", false, true, GiveUp},
	CodeNoSuchSub:         {"NO_SUCH_SUBSCRIPTION", "no such subscription", false, true, GiveUp},
	CodeNoSuchNamespace:   {"NO_SUCH_NAMESPACE", "no such namespace", false, true, GiveUp},
	CodeExists:            {"EXISTS", "exists with other settings", false, true, GiveUp},
	CodeBadName:           {"BAD_NAME", "bad name", false, true, GiveUp},
	CodeMoved:             {"MOVED", "another broker owns the partition", true, true, LookUp},
	CodeMoving:            {"MOVING", "the partition is moving", true, true, Wait},
	CodeUnknownEpoch:      {"UNKNOWN_EPOCH", "the epoch is not the current one", true, true, LookUp},
	CodeNoLeader:          {"NO_LEADER", "the cluster has no leader", true, true, Wait},
	CodeUnknownOutcome:    {"UNKNOWN_OUTCOME", "stored or not is not known", true, false, AskAgain},
	CodeStorageFull:       {"STORAGE_FULL", "no space left on the broker's disk", true, true, Wait},
	CodeStorageFailed:     {"STORAGE_FAILED", "the broker's disk failed", true, false, AskAgain},
	CodeCorruptBatch:      {"CORRUPT_BATCH", "the batch arrived damaged", false, true, GiveUp},
	CodeBadSequence:       {"BAD_SEQUENCE", "sequence out of order", true, true, Reopen},
	CodeSequenceOverlap:   {"SEQUENCE_OVERLAP", "the batch overlaps stored ones", false, true, GiveUp},
	CodeProducerFenced:    {"PRODUCER_FENCED", "another producer took over", false, true, GiveUp},
	CodeProducerBusy:      {"PRODUCER_BUSY", "the topic has an exclusive producer", false, true, GiveUp},
	CodeConsumerBusy:      {"CONSUMER_BUSY", "the exclusive subscription has a consumer", false, true, GiveUp},
	CodeConsumerReplaced:  {"CONSUMER_REPLACED", "a consumer of the same name took over", false, true, GiveUp},
	CodeBelowLogStart:     {"BELOW_LOG_START", "the offset was removed by retention", false, true, GiveUp},
	CodeAboveEnd:          {"ABOVE_END", "the offset lies beyond the end", false, true, GiveUp},
	CodeDamaged:           {"DAMAGED", "the offsets are damaged on disk", false, true, GiveUp},
	CodePending:           {"PENDING", "the offsets lie on a broker that is away", true, true, Wait},
	CodeBadHandle:         {"BAD_HANDLE", "no such producer or consumer on this connection", true, true, Reopen},
	CodeWrongType:         {"WRONG_TYPE", "the subscription has another type", false, true, GiveUp},
	CodeLimit:             {"LIMIT", "a limit is reached", false, true, GiveUp},
	CodeNotReliable:       {"NOT_RELIABLE", "the topic keeps no messages", false, true, GiveUp},
	CodeStaleGeneration:   {"STALE", "the delivery is no longer this consumer's", false, true, GiveUp},
	CodeLevelUnavailable:  {"LEVEL_UNAVAILABLE", "the durability's tier is not configured", false, true, GiveUp},
	CodeSlowConsumer:      {"SLOW_CONSUMER", "the consumer did not read in time", true, true, Reopen},
	CodeNotReady:          {"NOT_READY", "the broker is not ready", true, true, Wait},
	CodeSubscriptionInUse: {"SUBSCRIPTION_IN_USE", "the subscription has consumers", false, true, GiveUp},
}
