package mortise_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The README's commands and its program, as a new user would try them.
func TestTheReadmeLeadsToAWorkingLock(t *testing.T) {
	t.Parallel()
	s := start(t)
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	commands := strings.ReplaceAll(block(t, string(page), "sh"), "…/mortise/helpers/go", folder)
	program := block(t, string(page), "go")
	example, err := os.ReadFile("examples/sell/main.go")
	if err != nil || string(example) != program {
		t.Fatal("examples/sell is another program than the README's:", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	commands = strings.ReplaceAll(commands, "go run .", "go run . "+s.addr)
	if out := bash(t, dir, "set -e\n"+commands); !strings.Contains(out, "sold, with the fencing token") {
		t.Fatal(out)
	}
	if !s.free("stock:17") {
		t.Fatal("the lock is not free")
	}
}

func TestTheReadmeNamesTheOldestGoThatWorks(t *testing.T) {
	ask := func(args ...string) string {
		out, err := exec.Command("go", append([]string{"list", "-m", "-f", "{{.GoVersion}} {{.Version}}"}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	ours, _, _ := strings.Cut(ask(), " ")
	theirs, version, _ := strings.Cut(ask("github.com/redis/go-redis/v9"), " ")
	if ours != theirs {
		t.Fatalf("go.mod asks for Go %s, go-redis for %s", ours, theirs)
	}
	claim := fmt.Sprintf("needs Go %s or later, because go-redis %s does", minor(ours), minor(strings.TrimPrefix(version, "v")))
	if page, err := os.ReadFile("README.md"); err != nil || !strings.Contains(string(page), claim) {
		t.Fatalf("the README does not say that it %s: %v", claim, err)
	}
}

// minor is a version without its last part.
func minor(version string) string { return version[:strings.LastIndex(version, ".")] }

func block(t *testing.T, page, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "```"+language+"\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("the README has no block in %s", language)
	}
	return text
}

func bash(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}
