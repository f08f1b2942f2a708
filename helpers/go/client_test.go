package mortise

import "testing"

func TestTheTargetOfAnAskIsTheServerThatRepliedWhereItNamesNoHost(t *testing.T) {
	for _, c := range []struct{ ask, replied, want string }{
		{"866 10.0.0.2:7001", "10.0.0.1:7000", "10.0.0.2:7001"},
		{"866 ::1:7001", "[::1]:7000", "[::1]:7001"},
		{"866 :7001", "[::1]:7000", "[::1]:7001"},
		{"866 ?:7001", "10.0.0.1:7000", "10.0.0.1:7001"},
		{"866 node-2.example:7001", "10.0.0.1:7000", "node-2.example:7001"},
	} {
		if got := target(&Refused{"ASK", c.ask}, c.replied); got != c.want {
			t.Errorf("%q from %s: %s, not %s", c.ask, c.replied, got, c.want)
		}
	}
}
