package client

// EndRefusal ends the time in which streams are not tried.
func (c *Client) EndRefusal() { c.refused.Store(1) }

// EndSuspicions ends the time in which connections get no streams.
func (c *Client) EndSuspicions() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.suspected)
}
