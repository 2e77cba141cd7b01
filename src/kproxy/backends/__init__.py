"""The backends: each turns a `kproxy.plan.Plan` into one kernel subsystem's rules, and applies them."""
