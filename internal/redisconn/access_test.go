package redisconn

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// answerText is an error that a server answers.
type answerText string

func (a answerText) Error() string { return string(a) }
func (answerText) RedisError()     {}

// Errors of servers of several versions name the setting that is wrong. The empty
// setting is for errors that may pass by themselves.
func TestErrorNamesTheSetting(t *testing.T) {
	for answer, setting := range map[string]string{
		"WRONGPASS invalid username-password pair or user is disabled.": "redis.password_file",
		"ERR invalid password": "redis.password_file",
		"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?": "redis.password_file",
		"ERR Client sent AUTH, but no password is set":                                                                 "redis.password_file",
		"ERR wrong number of arguments for 'auth' command":                                                             "redis.username",
		"NOAUTH Authentication required.":                                                                              "redis.password_file",
		"NOPERM this user has no permissions to run the 'evalsha' command":                                             "redis.username",
		"NOPERM No permissions to access a key":                                                                        "keys rl{*",
		"ERR The user executing the script can't run this command or subcommand script: 0a, on @user_script:1.":        "docs/redis.md",
		"ERR ACL failure in script: User u has no permissions to run the 'set' command script: 0a, on @user_script:1.": "docs/redis.md",
		"ERR DB index is out of range":                                                                                 "redis.database",
		"ERR invalid DB index":                                                                                         "redis.database",
		"ERR SELECT is not allowed in cluster mode":                                                                    "redis.database",
		"ERR This instance has cluster support disabled":                                                               "redis.mode",
		"CROSSSLOT Keys in request don't hash to the same slot":                                                        "redis.mode",
		"MOVED 3999 10.0.0.1:6379":                                                                                     "redis.mode",
		"ERR unknown command 'evalsha', with args beginning with: '0a'":                                                "redis.addresses",
		"ERR unknown command `EVALSHA`, with args beginning with: `0a`, ":                                              "redis.addresses",
		"ERR Unknown Redis command called from script script: 0a, on @user_script:1.":                                  "redis.addresses",
		"LOADING Redis is loading the dataset in memory":                                                               "",
		"READONLY You can't write against a read only replica.":                                                        "",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                             "",
		"OOM command not allowed when used memory > 'maxmemory'.":                                                      "",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.":             "",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":                       "",
		"NOREPLICAS Not enough good replicas to write.":                                                                "",
		"ERR max number of clients reached":                                                                            "",
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                      "",
	} {
		t.Run(answer, func(t *testing.T) {
			a := &Options{Mode: Single, Addresses: []string{"redis-1:6379"}, Prefix: "rl"}
			err := a.explain(AnyNode, fmt.Errorf("redis: %w", answerText(answer)))
			if refused := errors.Is(err, ErrRefused); refused != (setting != "") || !strings.Contains(err.Error(), answer) {
				t.Errorf("%s: refused %t: %v", answer, refused, err)
				return
			}
			if setting != "" && (!strings.Contains(err.Error(), setting) || !strings.Contains(err.Error(), "redis-1:6379")) {
				t.Errorf("the error lacks %s or the server: %v", setting, err)
			}
			var kept answerText
			if !errors.As(err, &kept) {
				t.Errorf("%s: the answer is lost: %v", answer, err)
			}
		})
	}
	cluster := &Options{Mode: Cluster}
	for _, answer := range []answerText{"MOVED 3999 10.0.0.1:6379", "CLUSTERDOWN Hash slot not served"} {
		t.Run(string(answer), func(t *testing.T) {
			if err := cluster.explain("redis-1:6379", answer); errors.Is(err, ErrRefused) {
				t.Errorf("on a cluster: %v", err)
			}
		})
	}
}
