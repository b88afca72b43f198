"""Servers that stand by themselves, outside of any trial: started, listed, checked and ended one by one."""
