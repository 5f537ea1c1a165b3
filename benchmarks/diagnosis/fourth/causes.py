CAUSES = None
