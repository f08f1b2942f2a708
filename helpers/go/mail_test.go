package mortise

import "testing"

// The numbers of letters follow the server's clock, and that of another primary may be behind.
func TestLettersOfANewBoxAreReadThoughTheirNumbersAreLower(t *testing.T) {
	locks := &Locks{}
	n := &node{locks: locks, pending: map[string]*pending{}, box: "box", since: 7, last: 1_000}
	p := &pending{since: 8, answer: make(chan answer, 1)}
	n.pending["o"] = p
	letter := []any{"number", int64(10), "key", "k", "owner", "o", "result", "granted", "token", int64(5), "age", int64(0)}
	n.read(0, []any{int64(8), int64(0), []any{letter}})
	if a := <-p.answer; a.token != 5 || a.err != nil {
		t.Fatal(a)
	}
	if n.last != 10 {
		t.Fatal(n.last)
	}
}
