package redisconn

import "testing"

func TestRefusalsAreKnown(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct{ refused, passes bool }{
		"READONLY You can't write against a read only replica.":                                       {refused: true, passes: true},
		"LOADING Redis is loading the dataset in memory":                                              {refused: true, passes: true},
		"CLUSTERDOWN Hash slot not served":                                                            {refused: true, passes: true},
		"OOM command not allowed when used memory > 'maxmemory'.":                                     {refused: true},
		"WRONGTYPE Operation against a key holding the wrong kind of value":                           {refused: true},
		"ERR ACL failure in script: User u has no permissions to run the 'set' command script: 0a, 1": {refused: true},
		"MOVED 3999 10.0.0.1:6379":                                                                    {}, // stays on a command that was forwarded and whose reply is lost
		"ERR unknown":                                                                                 {},
	} {
		err := answerText(answer)
		if IsRefusal(err) != want.refused || IsPassing(err) != want.passes {
			t.Errorf("%s: refused %t, passes %t", answer, IsRefusal(err), IsPassing(err))
		}
	}
}
